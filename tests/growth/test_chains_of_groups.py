"""A state of a chain of steps that make groups asks each step a few times, not twice as often."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset
from bushel.experimental import InterleaveIterDataset, WindowShuffleIterDataset, ZipIterDataset
from bushel.order.group_marks import MarksOfGroups
from bushel.order.stream_mix import _MixMarks

STEPS = 24


def document(number: int) -> dict[str, Any]:
    return {"t": np.full(5, number)}


def mixture() -> Any:
    return IterDataset.mix([MapDataset.range(10**6).map(document).to_iter_dataset()] * 3)


def window_shuffle(ds: Any, number: int) -> Any:
    return WindowShuffleIterDataset(ds, window_size=(7, 10, 3)[number % 3], seed=number)


def shuffle(ds: Any, number: int) -> Any:
    return ds.shuffle(20, seed=number)


def split(ds: Any, number: int) -> Any:
    rows = ds.pack({"t": (7, 10, 8)[number % 3]}, strategy="concat_then_split")
    return rows.map(lambda row: {"t": row["t"]})


def flat_map(ds: Any, number: int) -> Any:
    return ds.batch(4 + number % 3).unbatch()


def by_turns(ds: Any, number: int) -> Any:
    return (window_shuffle, split, shuffle, flat_map)[number % 4](ds, number)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each time that a step is asked for a group, or a mixture for a state."""
    notes: list[str] = []

    def noted(kind: type, method: str, what: str) -> None:
        original = getattr(kind, method)

        def counted(self: Any, *arguments: Any) -> Any:
            notes.append(what)
            return original(self, *arguments)

        monkeypatch.setattr(kind, method, counted)

    for kind in MarksOfGroups.__subclasses__():
        noted(kind, "group", "group")
    noted(_MixMarks, "_after", "mixture")
    return notes


def of_states(stream: Any, asked: list[str]) -> Iterator[Counter[str]]:
    """What is asked for the state after each of the first elements."""
    iterator = iter(stream)
    for _ in range(5):
        next(iterator)
        del asked[:]
        iterator.get_state()
        yield Counter(asked)


@pytest.mark.parametrize("step", [window_shuffle, shuffle, split, flat_map])
def test_a_chain_of_one_step(step: Callable[[Any, int], Any], asked: list[str]) -> None:
    stream = mixture()
    for number in range(STEPS):
        stream = step(stream, number)
    for notes in of_states(stream, asked):
        assert notes["group"] <= 4 * STEPS
        assert notes["mixture"] <= 4


def test_a_chain_of_different_steps(asked: list[str]) -> None:
    stream = mixture()
    for number in range(STEPS):
        stream = by_turns(stream, number)
    for notes in of_states(stream, asked):
        # A split may only have seen what the other steps hold back: then both are noted.
        assert notes["group"] <= STEPS * STEPS
        assert notes["mixture"] <= STEPS + 1


def test_mixtures_between_the_steps(asked: list[str]) -> None:
    stream, joins = mixture(), 12
    for number in range(joins):
        stream = flat_map(shuffle(window_shuffle(stream, number), number), number)
        other = MapDataset.range(10**6).map(document).to_iter_dataset()
        if number % 3 == 0:
            stream = IterDataset.mix([stream, other])
        elif number % 3 == 1:
            stream = InterleaveIterDataset([stream, other], cycle_length=2)
        else:
            stream = ZipIterDataset([stream, other]).map(lambda pair: pair[0])
    iterator = iter(window_shuffle(stream, 0))
    for _ in range(5):
        next(iterator)
        del asked[:]
        iterator.get_state()
        assert len(asked) <= (4 * joins) ** 2
