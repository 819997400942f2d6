"""Nurseries that are started before they are needed, and shared between datasets.

It takes a tenth of a second to start one, in which the program goes on building and importing. So
one is started when a dataset with workers is built. There is one for all that was built and not
iterated yet; whoever is iterated first has it. It ends with the last of those that expect it.

Workers of another dataset come from the one that is there, as long as a new one would be the same:
those of an evaluation, where training has workers, need not wait. It ends with the last workers.

Finalizers come here, in the middle of any line. So there is no lock, and nothing here is lost
or ended twice when it is interrupted by itself.
"""

import itertools
import os
import weakref
from contextlib import suppress
from typing import Any

from bushel.errors import WorkerError
from bushel.workers.launch import can_fork, start_nursery, surroundings


class SharedNursery:
    """A nursery, and who has or expects it."""

    def __init__(self) -> None:
        # Where nothing is forked it is not shared, and half of what is asked does not exist.
        self.surroundings = surroundings() if can_fork() else None
        self.nursery = start_nursery()
        # By numbers.
        self.expected_by: set[int] = set()
        self.had_by: set[int] = set()

    def is_as_if_new(self) -> bool:
        """Whether one that is started now would be the same."""
        self.nursery.read()
        return not self.nursery.gone and self.surroundings == surroundings()


# At most one that nobody has, unless threads build at the same moment; and those that somebody has.
_waiting: list[SharedNursery] = []
_shared: list[SharedNursery] = []
_numbers = itertools.count()


class Lease:
    """A nursery that somebody has, perhaps with others."""

    def __init__(self, shared: SharedNursery, number: int) -> None:
        self.nursery, self._shared, self._number = shared.nursery, shared, number

    def end(self) -> None:
        """Gives it back; it ends with the last one."""
        self._shared.had_by.discard(self._number)
        if not self._shared.had_by:
            with suppress(ValueError):  # It has ended.
                _shared.remove(self._shared)
                self.nursery.end()


def expect(owner: Any) -> None:
    """Has a nursery started, if there is none; it is kept as long as the owner lives."""
    if not can_fork():
        return  # It would be a worker itself, and there is no telling how many are wanted.
    # What stands in the way, if anything, is told when workers are wanted.
    with suppress(OSError, WorkerError):
        number = next(_numbers)
        if _waiting:
            # Those that are taken meanwhile do not mind.
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
    """Returns the nursery that waits, or that somebody has; a new one if it were another."""
    number = next(_numbers)
    while _waiting:
        early = _waiting.pop()
        if early.is_as_if_new():
            return _had(early, number)
        early.nursery.end()
    for shared in list(_shared) if can_fork() else ():
        if shared.is_as_if_new():
            shared.had_by.add(number)
            if shared in _shared:  # Or it has just ended.
                return Lease(shared, number)
    return _had(SharedNursery(), number)


def _had(shared: SharedNursery, number: int) -> Lease:
    shared.had_by.add(number)
    _shared.append(shared)
    return Lease(shared, number)


def _give_up(number: int) -> None:
    """One who expected a nursery is gone."""
    for early in list(_waiting):
        early.expected_by.discard(number)
        if not early.expected_by:
            with suppress(ValueError):  # Somebody else has it.
                _waiting.remove(early)
                early.nursery.end()


def _forget() -> None:
    """In a forked child: the nurseries are the parent's."""
    for nurseries in (_waiting, _shared):
        while nurseries:
            nurseries.pop().nursery.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
