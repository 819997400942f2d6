"""What counts: a source that says what was asked of it, and an order that says what it did."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bushel.core.node import LocateMany
from bushel.core.positions import Keys, Positions
from bushel.order.shuffle import ShuffleNode


@dataclass
class CountingSource:
    """Numbers from 0 on; notes how many records each call asks for."""

    length: int
    calls: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: int) -> int:
        self.calls.append(1)
        return key

    def __getitems__(self, keys: Sequence[int]) -> list[int]:
        self.calls.append(len(keys))
        return [int(key) for key in keys]

    @property
    def records(self) -> int:
        return sum(self.calls)

    def __repr__(self) -> str:
        return "CountingSource()"


@dataclass
class Located:
    """How many positions shuffles have located, and in how many calls."""

    positions: int = 0
    calls: int = 0


@contextmanager
def counting_shuffles(monkeypatch: pytest.MonkeyPatch) -> Iterator[Located]:
    """Counts what all shuffles locate meanwhile."""
    located, locate, side_by_side = Located(), ShuffleNode.locate, ShuffleNode.side_by_side

    def counted(self: ShuffleNode, positions: Positions) -> Positions:
        located.positions += len(positions)
        located.calls += 1
        return locate(self, positions)

    def counted_together(nodes: Sequence[ShuffleNode]) -> LocateMany | None:
        locate_many = side_by_side(nodes)
        if locate_many is None:
            return None

        def counted(which: Keys, positions: Positions) -> Positions:
            located.positions += len(positions)
            located.calls += 1
            return locate_many(which, positions)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(ShuffleNode, "locate", counted)
        patch.setattr(ShuffleNode, "side_by_side", counted_together)
        yield located


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return threading.active_count()


def children() -> set[int]:
    """The processes that this one has started, and that those have started."""
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        for path in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with suppress(FileNotFoundError):  # A thread that has ended meanwhile.
                new = set(map(int, path.read_text().split()))
                found |= new
                waiting += new
    return found
