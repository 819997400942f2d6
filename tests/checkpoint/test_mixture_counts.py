"""What mixtures have given so far, told by their states."""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions
from bushel.checkpoint import PartCounts, merge_states, mix_counts
from bushel.errors import StateError
from bushel.experimental import (
    FirstFitPackIterDataset,
    InterleaveIterDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    ZipIterDataset,
)
from bushel.sharding import ShardOptions


def _stream(count: int = 1000) -> IterDataset[int]:
    return MapDataset.range(count).to_iter_dataset(ReadOptions(0, 0))


def _elements(state: Any) -> dict[str, int]:
    return {path: part.elements for path, part in mix_counts(state).items()}


def test_nothing_yet() -> None:
    iterator = iter(IterDataset.mix([_stream(), _stream()]))
    assert mix_counts(iterator) == {"0": PartCounts(0, 0.0, 0, 0), "1": PartCounts(0, 0.0, 0, 0)}
    assert mix_counts(iter(_stream())) == {}


def test_mixtures_within_others_are_told_by_their_way() -> None:
    web = IterDataset.mix({"de": _stream(), "en": _stream()}, {"de": 1, "en": 3}).map(str)
    ds = IterDataset.mix({"web": web, "books": _stream().map(str)}, {"web": 4, "books": 1})
    iterator = iter(ds.batch(4, batch_fn=list).map(len))
    assert list(islice(iterator, 5)) == [4] * 5
    assert _elements(iterator) == {"books": 4, "web": 16, "web/de": 4, "web/en": 12}
    assert mix_counts(iterator)["web/en"].share == 0.75
    assert mix_counts(iterator) == mix_counts(iterator.get_state())


@pytest.mark.parametrize("done", [0, 1, 7, 20])
def test_what_was_read_ahead_does_not_count(done: int) -> None:
    ds = ThreadPrefetchIterDataset(
        IterDataset.mix([_stream(), _stream()], [1, 3]), prefetch_buffer_size=50
    )
    with iter(ds) as iterator:
        iterator.start_prefetch()
        assert len(list(islice(iterator, done))) == done
        assert sum(_elements(iterator).values()) == done


def test_epochs_and_parts_that_left() -> None:
    parts = {"a": _stream(5), "b": _stream(100)}
    again = iter(IterDataset.mix(parts, {"a": 1, "b": 1}, on_end="restart"))
    assert len(list(islice(again, 24))) == 24
    assert mix_counts(again) == {
        "a": PartCounts(12, 0.5, 2, 2),
        "b": PartCounts(12, 0.5, 0, 12),
    }
    without = iter(IterDataset.mix(parts, {"a": 1, "b": 1}, on_end="drop"))
    assert len(list(islice(without, 24))) == 24
    assert mix_counts(without)["a"] == PartCounts(5, 5 / 24, 0, 5, has_left=True)
    assert not mix_counts(without)["b"].has_left


def test_what_fails_is_not_counted() -> None:
    def fail_at_3(number: int) -> int:
        if number == 3:
            raise KeyError(number)
        return number

    iterator = iter(IterDataset.mix([_stream().map(fail_at_3), _stream()]))
    assert len(list(islice(iterator, 6))) == 6
    with pytest.raises(KeyError):
        next(iterator)
    next(iterator)
    assert _elements(iterator) == {"0": 3, "1": 4}


def test_every_kind_of_branch_is_on_the_way() -> None:
    mixed = IterDataset.mix([_stream(), _stream()])
    zipped = iter(ZipIterDataset([mixed, _stream()]))
    next(zipped)
    assert _elements(zipped) == {"0/0": 1, "0/1": 0}
    turns = iter(InterleaveIterDataset([_stream(), mixed], cycle_length=2))
    assert len(list(islice(turns, 4))) == 4
    assert _elements(turns) == {"1/0": 1, "1/1": 1}
    behind = iter(_stream(2).concat(mixed))
    assert len(list(islice(behind, 5))) == 5
    assert _elements(behind) == {"1/0": 2, "1/1": 1}


def test_groups_count_when_they_are_complete() -> None:
    mixed = IterDataset.mix([_stream(), _stream()])
    iterator = iter(WindowShuffleIterDataset(mixed, window_size=4, seed=1))
    counts = []
    for _ in range(9):
        next(iterator)
        counts.append(sum(_elements(iterator).values()))
    assert counts[3] in (0, 4) and counts[8] in (8, 12)


def _sequences(length: int, first: int) -> MapDataset[Any]:
    return MapDataset.range(300).map(
        lambda number: {"x": np.full(1 + number * length % 5, first + number)}
    )


@pytest.mark.parametrize("shuffles", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["plain", "filtered", "restarted"])
def test_rows_of_a_packer_are_counted_as_they_come(kind: str, workers: int, shuffles: bool) -> None:
    # The values tell which element a cell is of.
    parts = {"a": _sequences(3, 1000), "b": _sequences(2, 5000)}
    if kind == "restarted":
        parts["a"] = parts["a"][:7]
    mixed = IterDataset.mix(parts, [1, 3], on_end="restart" if kind == "restarted" else "stop")
    if kind == "filtered":
        mixed = mixed.filter(lambda element: element["x"][0] % 3 > 0)
    seed = {"shuffle_bins": True, "seed": 3} if shuffles else {"shuffle_bins": False}
    packed = FirstFitPackIterDataset(mixed, length_struct={"x": 8}, num_packing_bins=6, **seed)
    stream = packed.batch(2)
    if workers:
        stream = stream.mp_prefetch(MultiprocessingOptions(num_workers=workers))
    seen: dict[str, int] = {"a": 0, "b": 0}
    with iter(stream) as iterator:
        for _ in range(9):
            batch = next(iterator)
            for row, ids in zip(batch["x"], batch["x_segment_ids"], strict=True):
                firsts = [row[ids == number][0] for number in range(1, ids.max() + 1)]
                seen["a"] += sum(value < 5000 for value in firsts)
                seen["b"] += sum(value >= 5000 for value in firsts)
            told = mix_counts(iterator)
            if kind == "filtered":  # What was left out before an element counts with it.
                assert sum(seen.values()) <= sum(_elements(iterator).values())
            else:
                assert _elements(iterator) == {name: int(seen[name]) for name in seen}
            assert told["a"].share + told["b"].share == pytest.approx(1)
            if kind == "restarted":
                assert told["a"].epoch * 7 <= told["a"].elements + 7
        # Counting moves nothing.
        state = iterator.get_state()
        mix_counts(iterator)
        assert iterator.get_state() == state


def test_lanes_are_counted_together() -> None:
    def host(index: int) -> Any:
        parts = [
            MapDataset.range(1000)
            .repeat()
            .lanes(4, shard_options=ShardOptions(index, 2))
            .filter(bool)
            for _ in range(2)
        ]
        iterator = iter(IterDataset.mix(parts, [1, 3]).batch(8))
        next(iterator)
        return iterator.get_state()

    states = [host(0), host(1)]
    assert sum(_elements(states[0]).values()) == 4
    assert _elements(merge_states(states)) == {"0": 2, "1": 6}


@pytest.mark.parametrize("what", [None, 7, [1], "state"])
def test_what_is_no_state(what: Any) -> None:
    with pytest.raises(StateError, match="takes an iterator or a state"):
        mix_counts(what)


@pytest.mark.parametrize("on_end", ["drop", "restart"])
def test_a_part_has_left_or_begun_again_when_it_has_in_all_lanes(on_end: str) -> None:
    parts = {
        name: MapDataset.range(length).lanes(2).filter(lambda number: number >= 0)
        for name, length in (("a", 5), ("b", 100))
    }
    iterator = iter(IterDataset.mix(parts, {"a": 1, "b": 1}, on_end=on_end).batch(2))
    told = []
    for _ in range(7):
        next(iterator)
        told.append(mix_counts(iterator)["a"])
    # The second lane has two elements of this part, and the first one three.
    if on_end == "drop":
        assert [counts.has_left for counts in told] == [False] * 6 + [True]
    else:
        assert [counts.epoch for counts in told] == [0] * 6 + [1]
