"""Streams of positions that are read side by side give what each gives by itself."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import bushel.order.zip
from bushel import IterDataset, MapDataset, WeightSchedule
from bushel.core.positions import occurrences
from bushel.experimental import InterleaveIterDataset, ZipIterDataset
from bushel.run import side_by_side
from bushel.run.light_elements import LightElements
from bushel.run.positional import PositionalStream
from tests.thorough import crossed

PARTS = 5
LENGTHS = [7, 12, 9, 30, 11]


class Bang(Exception):
    pass


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few datasets are read each by itself otherwise, zipped or filtered."""
    monkeypatch.setattr(bushel.order.zip, "_FEWEST_SIDE_BY_SIDE", PARTS)
    monkeypatch.setattr(side_by_side, "FEWEST_KEPT", PARTS)


def plain(number: int) -> MapDataset[Any]:
    return MapDataset.range(100 * number, 100 * number + LENGTHS[number]).shuffle(seed=number)


def leaving_out(number: int) -> MapDataset[Any]:
    """What a function returns None for is left out, which nobody knows before."""
    return plain(number).map(lambda x: None if x % 100 == 5 else x)


def failing(number: int) -> MapDataset[Any]:
    def fail(x: int) -> int:
        if x % 100 == 5:
            raise Bang(x)
        return x

    return plain(number).map(fail)


def with_none(x: int) -> int | None:
    return None if x % 7 == 3 else x


def filtered_by_position(number: int) -> MapDataset[Any]:
    return plain(number).filter(lambda x: x % 3 != 1)


def filtered(number: int) -> IterDataset[Any]:
    """A None that a function of a stream returns is an element, which a filter then sees."""
    stream = plain(number).to_iter_dataset().map(with_none).filter(lambda x: x is None or x % 3)
    return stream.map(lambda x: -1 if x is None else x)


def some_filtered(number: int) -> Any:
    """All kinds: with other filters, with none, with two."""
    stream = filtered_by_position(number).to_iter_dataset()
    if number == 1:
        return plain(number).to_iter_dataset()
    if number == 2:
        return stream.filter(lambda x: x % 5 != 2).filter(lambda x: x % 2)
    return stream.map(lambda x: x + 1000 * number)


def empty(number: int) -> MapDataset[Any]:
    """Of one of them, nothing is left."""
    return plain(number).filter(lambda x: x // 100 != 3)


def failing_filter(number: int) -> MapDataset[Any]:
    def fail(x: int) -> bool:
        if x % 100 == 5:
            raise Bang(x)
        return x % 3 != 1

    return plain(number).filter(fail)


def mixed(number: int) -> IterDataset[Any]:
    """A mixture, of which one part may end, and which goes on in another place of its pattern."""
    parts = [plain(number).to_iter_dataset(), plain((number + 1) % PARTS).to_iter_dataset()]
    return IterDataset.mix([part.map(lambda x: x + 1) for part in parts], [1 + number, 2])


def mixed_by_name(number: int) -> IterDataset[Any]:
    stream = IterDataset.mix(
        {"a": mixed(number), "b": plain(0).to_iter_dataset()}, {"a": 3, "b": 1}
    )
    return stream.filter(lambda x: x % 3 != 1) if number % 2 else stream


def mixed_leaving_out(number: int) -> IterDataset[Any]:
    parts = [leaving_out(number).to_iter_dataset(), plain(1).to_iter_dataset()]
    return IterDataset.mix(parts, [2, 1]).filter(lambda x: x % 3 != 1)


def mixed_failing(number: int) -> IterDataset[Any]:
    parts = [failing(number).to_iter_dataset(), plain(1).to_iter_dataset()]
    return IterDataset.mix(parts, [2, 1])


MIXED = [mixed, mixed_by_name, mixed_leaving_out, mixed_failing]
KEPT = [filtered_by_position, filtered, some_filtered, empty, failing_filter]


def streams(part: Callable[[int], Any]) -> list[IterDataset[Any]]:
    parts = [part(number) for number in range(PARTS)]
    made = [p.to_iter_dataset() if isinstance(p, MapDataset) else p for p in parts]
    return [stream.map(lambda x: x + 1) for stream in made]


RAMP = WeightSchedule.linear([(0, [1, 2, 3, 4, 5]), (30, [5, 1, 0, 1, 2])])
JOINED: dict[str, Callable[[list[Any]], Any]] = {
    "mix": lambda parts: IterDataset.mix(parts, [1, 2, 3, 4, 5]),
    "mix, drop": lambda parts: IterDataset.mix(parts, [1, 2, 3, 4, 5], on_end="drop"),
    "mix, restart": lambda parts: IterDataset.mix(parts, [5, 1, 1, 1, 2], on_end="restart"),
    "by name": lambda parts: IterDataset.mix(
        {f"p{number}": part for number, part in enumerate(parts)}
    ),
    "scheduled": lambda parts: IterDataset.mix(parts, RAMP, on_end="drop"),
    "interleave": lambda parts: InterleaveIterDataset(parts, cycle_length=PARTS),
    "interleave, few open": lambda parts: InterleaveIterDataset(parts, cycle_length=2),
    "zip": lambda parts: ZipIterDataset(parts, strict=False),
    "zip, strict": ZipIterDataset,
}
EVENTS = 120


def happened(stream: Any, states: list[Any] | None = None) -> list[Any]:
    """What comes of a stream: elements, and errors in the place of those that fail."""
    found: list[Any] = []
    while len(found) < EVENTS:
        if states is not None:
            states.append(stream.get_state())
        try:
            found.append(next(stream))
        except StopIteration:
            break
        except Exception as error:
            found.append((type(error), str(error)))
    return found


# Whether a stream begins again, and how, shows with the plainest of parts.
_CASES = [
    *itertools.product(JOINED, [plain]),
    *crossed(JOINED, [leaving_out, failing, *KEPT, *MIXED], every=3),
]


@pytest.mark.parametrize(("joined", "part"), _CASES)
def test_the_same_as_each_by_itself(
    part: Callable[[int], Any], joined: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = JOINED[joined](streams(part))
    states: list[Any] = []
    with iter(dataset) as stream:
        elements = happened(stream, states)
    each_states: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(side_by_side, "FEWEST", PARTS + 1)
        patch.setattr(side_by_side, "FEWEST_KEPT", PARTS + 1)
        with iter(dataset) as stream:
            assert happened(stream, each_states) == elements
    assert states == each_states
    with iter(dataset) as stream:
        last = len(states) - 1
        for index in (0, min(1, last), len(states) // 3, len(states) // 2, last):
            stream.set_state(states[index])
            assert stream.get_state() == states[index]
            rest = happened(stream)
            assert rest[: len(elements) - index] == elements[index:]


@pytest.mark.parametrize("joined", ["mix", "mix, drop", "mix, restart", "scheduled", "by name"])
def test_no_stream_is_opened_as_long_as_all_have_elements(
    joined: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("opened")  # No element fails by that: it ends the test.

    monkeypatch.setattr(PositionalStream, "__init__", refuse)
    assert happened(iter(JOINED[joined](streams(plain))))
    if joined != "mix, restart":
        for part in (filtered_by_position, filtered, some_filtered, mixed):
            assert happened(iter(JOINED[joined](streams(part))))


@pytest.mark.parametrize("joined", ["mix", "interleave", "zip"])
def test_heavy_elements_are_read_by_each(joined: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    make = PositionalStream.__init__

    def noted(self: Any, *args: Any, **more: Any) -> None:
        opened.append(self)
        make(self, *args, **more)

    monkeypatch.setattr(PositionalStream, "__init__", noted)
    # As if each element had taken a second.
    monkeypatch.setattr(
        LightElements,
        "learn",
        lambda self, _, count, __: setattr(self, "_excess", float(count)),
    )
    stream = iter(JOINED[joined](streams(plain)))
    next(stream)
    assert not opened
    assert len(list(itertools.islice(stream, 3))) == 3
    assert len(opened) == PARTS


def test_a_repeated_mixture_is_read_side_by_side_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(PositionalStream, "__init__", refuse)
    once = JOINED["mix"](streams(plain))
    assert list(once.repeat(2)) == 2 * list(once)


def test_occurrences() -> None:
    import numpy as np

    which = np.random.default_rng(0).integers(0, 5, 100)
    wanted = [list(which[:place]).count(number) for place, number in enumerate(which)]
    assert occurrences(which).tolist() == wanted
