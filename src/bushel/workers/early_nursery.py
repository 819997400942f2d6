"""A nursery that is started before it is wanted: when a dataset with workers is built.

It takes a tenth of a second to start, in which the program goes on building and importing.
There is one for all that was built and not iterated yet; whoever is iterated first has it. It
ends with the last of those that expect it.

Finalizers come here, in the middle of any line. So there is no lock, and nothing here is lost
or ended twice when it is interrupted by itself.
"""

import itertools
import os
import weakref
from contextlib import suppress
from typing import Any

from bushel.errors import WorkerError
from bushel.workers.child import NurseryProcess
from bushel.workers.launch import can_fork, start_nursery, surroundings


class _Early:
    """A nursery that nobody has taken, and who expects it."""

    def __init__(self, expected_by: int) -> None:
        self.surroundings = surroundings()
        self.nursery = start_nursery()
        self.expected_by = {expected_by}

    def is_as_if_new(self) -> bool:
        """Whether one that is started now would be the same."""
        self.nursery.read()
        return not self.nursery.gone and self.surroundings == surroundings()


# At most one, unless threads build at the same moment.
_waiting: list[_Early] = []
_numbers = itertools.count()


def expect(owner: Any) -> None:
    """Has a nursery started, if none waits; it is kept as long as the owner lives."""
    if not can_fork():
        return  # It would be a worker itself, and there is no telling how many are wanted.
    # What stands in the way, if anything, is told when workers are wanted.
    with suppress(OSError, WorkerError):
        number = next(_numbers)
        if _waiting:
            # Those that are taken meanwhile do not mind.
            for early in list(_waiting):
                early.expected_by.add(number)
        else:
            _waiting.append(_Early(number))
        weakref.finalize(owner, _give_up, number)


def take() -> NurseryProcess | None:
    """Returns the nursery that waits, if what it was born with is still what there is."""
    while _waiting:
        early = _waiting.pop()
        if early.is_as_if_new():
            return early.nursery
        early.nursery.end()
    return None


def _give_up(number: int) -> None:
    """One who expected a nursery is gone."""
    for early in list(_waiting):
        early.expected_by.discard(number)
        if not early.expected_by:
            with suppress(ValueError):  # Somebody else has it.
                _waiting.remove(early)
                early.nursery.end()


def _forget() -> None:
    """In a forked child: the nursery is the parent's."""
    while _waiting:
        _waiting.pop().nursery.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
