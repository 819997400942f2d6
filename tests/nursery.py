"""One nursery for the tests that need workers and do not ask where these come from.

A nursery takes a quarter of a second of a core to start, and a worker that it forks a twentieth.
So it is lent: to one pool at a time, and only where one that is started now would be the same.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from bushel.workers import early_nursery, launch
from bushel.workers.child import NurseryProcess


class LentNursery(NurseryProcess):
    """A nursery that comes back when its pool ends; its workers have ended before."""

    lent = True

    def __init__(self, started: NurseryProcess) -> None:
        vars(self).update(vars(started))  # It is that one, and only its end is another.
        self.surroundings = _surroundings()

    def can_be_lent(self) -> bool:
        """Whether nobody has it, and one that is started now would be the same."""
        self.read()
        return not self.lent and not self.gone and self.surroundings == _surroundings()

    def end(self) -> None:
        """Gives it back."""
        self.lent = False
        if self.gone:
            super().end()


def _surroundings() -> list[Any]:
    """What a process is born with, but for the name of the test."""
    return [
        {**part, "PYTEST_CURRENT_TEST": ""} if isinstance(part, dict) else part
        for part in launch.surroundings()
    ]


# At most one, and none in a forked child.
_kept: list[LentNursery] = []


def kept_pids() -> set[int]:
    """The process that stays when a test ends."""
    return {nursery.process.pid for nursery in _kept if not nursery.gone}


def idle_pids() -> set[int]:
    """The same, if no pool has it now."""
    return {nursery.process.pid for nursery in _kept if not nursery.lent and not nursery.gone}


def _start_or_lend() -> NurseryProcess:
    if _kept and _kept[0].can_be_lent():
        _kept[0].lent = True
        return _kept[0]
    started = launch.start_nursery()
    if not launch.can_fork() or (_kept and _kept[0].lent and not _kept[0].gone):
        return started
    _end_kept()
    _kept.append(LentNursery(started))
    return _kept[0]


def _end_kept() -> None:
    while _kept:
        NurseryProcess.end(_kept.pop())


def _forget_kept() -> None:
    while _kept:
        _kept.pop().forget()


os.register_at_fork(after_in_child=_forget_kept)


@pytest.fixture(scope="session")
def kept_nursery() -> Iterator[None]:
    """Ends the nursery with the session."""
    yield
    _end_kept()


@pytest.fixture(autouse=True)
def one_nursery(kept_nursery: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the workers of a test come from the nursery that earlier tests had."""
    monkeypatch.setattr(early_nursery, "start_nursery", _start_or_lend)
