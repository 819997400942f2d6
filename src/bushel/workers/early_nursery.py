"""Nurseries that are started before they are needed, and shared between datasets.

Starting a nursery takes a tenth of a second, in which the program goes on building and importing.
So one is started when a dataset with workers is built. There is one for all datasets that were
built and not iterated yet; the first that is iterated takes it. It ends with the last dataset that
may need it.

A second dataset shares the nursery of the first, as long as a new one would be the same: so the
workers of an evaluation need not wait, while the training has workers. It ends with the last
workers.

Finalizers call this, in the middle of any line. So there is no lock, and no nursery is lost or
ended twice if a call interrupts another.
"""

import itertools
import os
import weakref
from contextlib import suppress
from typing import Any

from bushel.errors import WorkerError
from bushel.workers.launch import can_fork, start_nursery, surroundings


class SharedNursery:
    """A nursery, and the owners that have or expect it."""

    def __init__(self) -> None:
        # Without forking it is not shared, and some of the surroundings do not exist.
        self.surroundings = surroundings() if can_fork() else None
        self.nursery = start_nursery()
        # Owners by number.
        self.expected_by: set[int] = set()
        self.had_by: set[int] = set()

    def is_as_if_new(self) -> bool:
        """Whether a new one would be the same."""
        self.nursery.read()
        return not self.nursery.gone and self.surroundings == surroundings()


# Nurseries without a user (at most one, unless threads build at the same moment); and those in use.
_waiting: list[SharedNursery] = []
_shared: list[SharedNursery] = []
_numbers = itertools.count()


class Lease:
    """The use of a nursery, perhaps shared."""

    def __init__(self, shared: SharedNursery, number: int) -> None:
        self.nursery, self._shared, self._number = shared.nursery, shared, number

    def end(self) -> None:
        """Ends the use; the nursery ends with its last use."""
        self._shared.had_by.discard(self._number)
        if not self._shared.had_by:
            with suppress(ValueError):  # It has ended.
                _shared.remove(self._shared)
                self.nursery.end()


def expect(owner: Any) -> None:
    """Starts a nursery, if there is none; it is kept as long as the owner lives."""
    if not can_fork():
        return  # It would be a worker itself, and their number is unknown.
    # Obstacles are reported when workers are needed.
    with suppress(OSError, WorkerError):
        number = next(_numbers)
        if _waiting:
            # Those that are taken meanwhile are not affected.
            for early in list(_waiting):
                early.expected_by.add(number)
        elif any(shared.is_as_if_new() for shared in list(_shared)):
            return
        else:
            early = SharedNursery()
            early.expected_by.add(number)
            _waiting.append(early)
        weakref.finalize(owner, _give_up, number)


def take() -> Lease:
    """Returns the waiting nursery, or one in use; a new one if the surroundings have changed."""
    number = next(_numbers)
    while _waiting:
        early = _waiting.pop()
        if early.is_as_if_new():
            return _had(early, number)
        early.nursery.end()
    for shared in list(_shared) if can_fork() else ():
        if shared.is_as_if_new():
            shared.had_by.add(number)
            if shared in _shared:  # It may have just ended.
                return Lease(shared, number)
    return _had(SharedNursery(), number)


def _had(shared: SharedNursery, number: int) -> Lease:
    shared.had_by.add(number)
    _shared.append(shared)
    return Lease(shared, number)


def _give_up(number: int) -> None:
    """An owner that expected a nursery is gone."""
    for early in list(_waiting):
        early.expected_by.discard(number)
        if not early.expected_by:
            with suppress(ValueError):  # It is in use.
                _waiting.remove(early)
                early.nursery.end()


def _forget() -> None:
    """In a forked child: the nurseries belong to the parent."""
    for nurseries in (_waiting, _shared):
        while nurseries:
            nurseries.pop().nursery.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
