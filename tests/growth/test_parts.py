"""A thousand datasets that are read in turn are read together: by counting calls."""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, ReadOptions, WeightSchedule
from bushel.experimental import InterleaveIterDataset, ZipIterDataset, ZipMapDataset
from bushel.order import line_columns, line_shares, permutations
from bushel.order.line_columns import rows_of
from bushel.order.mix_turns import ScheduledTurns
from bushel.order.proportions import table_of
from bushel.run.positional import PositionalStream
from bushel.run.side_by_side import PartsSideBySide
from bushel.sources.memory import RangeNode
from bushel.sources.read_records import SequenceNode
from tests.growth.counting import CountingSource

SIZES = pytest.mark.parametrize("size", [16, 1000])


def parts(size: int) -> list[MapDataset[int]]:
    return [MapDataset.range(10**6).shuffle(seed=seed) for seed in range(size)]


def streams(size: int) -> list[Any]:
    return [part.to_iter_dataset() for part in parts(size)]


MADE: dict[str, Callable[[int], Any]] = {
    "mix": lambda size: IterDataset.mix(streams(size), [1 + i % 7 for i in range(size)]),
    "restart": lambda size: IterDataset.mix(streams(size), on_end="restart"),
    "interleave": lambda size: InterleaveIterDataset(streams(size), cycle_length=size),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str, size: Callable[..., int] = lambda *_: 1) -> None:
        original = getattr(owner, name)

        def counting(*args: Any, **more: Any) -> Any:
            counted[name] += size(*args)
            return original(*args, **more)

        monkeypatch.setattr(owner, name, counting)

    count(RangeNode, "fetch")
    count(PositionalStream, "pull")
    count(PartsSideBySide, "read")
    count(permutations, "permute_each", lambda positions, *_: len(positions))
    return counted


@SIZES
@pytest.mark.parametrize("made", MADE)
def test_first_elements(made: str, size: int, calls: Counter[str]) -> None:
    assert len(list(islice(MADE[made](size), 640))) == 640
    assert not calls["pull"]
    # Few at first, and four times as many each time.
    assert calls["read"] <= 12
    # One after the other while they are few; and none that was not needed.
    assert calls["fetch"] <= 400
    assert calls["permute_each"] <= 8 * 640


@SIZES
@pytest.mark.parametrize("made", MADE)
def test_a_state_needs_no_stream(made: str, size: int, calls: Counter[str]) -> None:
    dataset = MADE[made](size)
    stream = iter(dataset)
    for _ in range(100):
        next(stream)
    state = stream.get_state()
    calls.clear()
    again = iter(dataset)
    again.set_state(state)
    assert again.get_state() == state
    assert next(again) == next(stream)
    assert not calls["pull"]
    assert calls["fetch"] <= 2


@SIZES
def test_filtered_streams_are_read_together(size: int, calls: Counter[str]) -> None:
    source = CountingSource(10**6)
    options = ReadOptions(num_threads=0)
    shuffled = [MapDataset.source(source).shuffle(seed=seed) for seed in range(size)]
    filtered = [part.to_iter_dataset(options).filter(lambda x: x % 2 == 0) for part in shuffled]
    assert len(list(islice(IterDataset.mix(filtered), 4000))) == 4000
    assert not calls["pull"]
    # Twice as many as are left, and some of each part that nobody has taken yet.
    assert source.records <= 4 * 4000 + 4 * size
    # One call for a block of all of them, and few for one part that lacks an element.
    assert len(source.calls) <= 400


@pytest.mark.parametrize("groups", [4, 250])
def test_mixtures_of_filtered_streams_are_read_together(groups: int, calls: Counter[str]) -> None:
    source = CountingSource(10**6)
    options = ReadOptions(num_threads=0)
    shuffled = [MapDataset.source(source).shuffle(seed=seed) for seed in range(4 * groups)]
    filtered = [part.to_iter_dataset(options).filter(lambda x: x % 2 == 0) for part in shuffled]
    inner = [
        IterDataset.mix(filtered[first : first + 4], [1, 2, 3, 4]).map(lambda x: x + 1)
        for first in range(0, 4 * groups, 4)
    ]
    dataset = IterDataset.mix(inner, [1 + group % 3 for group in range(groups)])
    stream = iter(dataset)
    assert len(list(islice(stream, 4000))) == 4000
    # As many as of one mixture of all of them.
    assert source.records <= 4 * 4000 + 16 * groups
    assert len(source.calls) <= 400
    state, following = stream.get_state(), next(stream)
    source.calls.clear()
    again = iter(dataset)
    again.set_state(state)
    assert again.get_state() == state
    assert next(again) == following
    assert source.records <= 32
    assert not calls["pull"]


@SIZES
def test_selected(size: int, calls: Counter[str]) -> None:
    class InTurn:
        def __len__(self) -> int:
            return 10**6

        def __getitem__(self, index: int) -> tuple[int, int]:
            return index % size, index // size

    selected = MapDataset.select_from_datasets(parts(size), InTurn())
    assert len(list(islice(selected.to_iter_dataset(), 4000))) == 4000
    # Some are read ahead, four times as many as before each time.
    assert calls["permute_each"] <= 8 * 4000
    assert calls["fetch"] <= 400


@SIZES
def test_weights_that_all_change(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def counted(low: Any, high: Any, way: Any, *more: Any) -> Any:
        computed.append(len(low) * len(way))
        return rows_of(low, high, way, *more)

    monkeypatch.setattr(line_columns, "rows_of", counted)
    monkeypatch.setattr(line_shares, "rows_of", counted)
    rng = np.random.default_rng(0)
    ends = [rng.lognormal(0.0, 1.5, size).tolist() for _ in range(2)]
    ramp = WeightSchedule.linear([(0, ends[0]), (10**6, ends[1])])
    turns = ScheduledTurns(table_of(ramp, None, size), size, (0, 1))
    turns.choose(0, 4000, turns.beginning(), [True] * size)
    # Each once for the sum of all, and once more where an element gets to the part: to half of
    # them, and a few that were given away.
    assert 0 < sum(computed) <= 1.7 * size * 4000


@SIZES
def test_zipped_by_position(size: int, calls: Counter[str]) -> None:
    zipped = ZipMapDataset(parts(size))
    assert len(zipped[3]) == size
    assert [len(row) for row in islice(zipped.to_iter_dataset(), 5)] == [size] * 5
    # All of them in one call, unless there are so few that each is as good.
    assert calls["fetch"] <= 16 * 6


@SIZES
def test_zipped_streams(size: int, calls: Counter[str]) -> None:
    rows = list(islice(ZipIterDataset(streams(size)), 20))
    assert rows[3] == tuple(part[3] for part in parts(size))
    assert not calls["pull"]
    assert calls["read"] <= 25


@SIZES
def test_zipped_streams_that_leave_elements_out(
    size: int, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long it takes: how much is read of each at a time is learned from it.
    monkeypatch.setattr("bushel.order.foresight._SECONDS", 10.0)
    monkeypatch.setattr("bushel.order.foresight._WAIT", 10.0)
    filtered = [stream.filter(lambda x: x % 2 == 0) for stream in streams(size)]
    rows = list(islice(ZipIterDataset(filtered), 64))
    even = [[part[i] for i in range(200) if part[i] % 2 == 0][63] for part in parts(size)[:3]]
    assert list(rows[63][:3]) == even
    # Not one by one.
    assert calls["pull"] <= 32 * size


def test_records_of_many_lists_are_read_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    fetch = SequenceNode.fetch

    def noted(self: SequenceNode, keys: Any, positions: Any) -> Any:
        fetched.append(len(keys))
        return fetch(self, keys, positions)

    monkeypatch.setattr(SequenceNode, "fetch", noted)
    lists = [MapDataset.source([f"{n}.{i}" for i in range(5)]) for n in range(1000)]
    mixed = IterDataset.mix([part.to_iter_dataset() for part in lists])
    assert len(list(mixed)) == 5000
    assert len(fetched) <= 50
