"""A function that fails at one element: its error comes there, and the rest comes too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, ReadOptions
from bushel.experimental import (
    BestFitPackIterDataset,
    CacheIterDataset,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    FlatMapIterDataset,
    FlatMapMapDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    RebatchIterDataset,
    RepeatIterDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
)
from tests.contract import failing_parts
from tests.contract.events import events_of, is_error, pull_events, run_events, wants_from
from tests.contract.failing_parts import (
    FAILING_ID,
    BoomSelection,
    BoomTwice,
    boom,
    boom_batch,
    boom_if,
    boom_with_index,
    boom_with_rng,
)
from tests.contract.parts import double, is_not_third, ragged, with_index
from tests.contract.pipelines import INLINE, Kit
from tests.contract.subclasses import BoomDataset


@dataclass(frozen=True)
class Case:
    """A pipeline, what its error says of where it was, and the ids that go missing with it."""

    build: Callable[[Kit], Any]
    operation: str
    position: int = FAILING_ID
    missing: tuple[int, ...] = (FAILING_ID,)


def _stream(kit: Kit) -> IterDataset[Any]:
    return kit.stream(30)


CASES = {
    "MapDataset.map": Case(lambda kit: kit.source(30).map(boom), "map(boom)"),
    "MapDataset.map, backwards": Case(
        lambda kit: kit.source(30)[::-1].map(boom), "map(boom)", position=30 - 1 - FAILING_ID
    ),
    "MapDataset.map, then shuffled": Case(
        lambda kit: kit.source(30).map(boom).shuffle(seed=3).map(double),
        "map(boom)",
        missing=(2 * FAILING_ID,),
    ),
    "MapDataset.map_with_index": Case(
        lambda kit: kit.source(30).map_with_index(boom_with_index),
        "map_with_index(boom_with_index)",
    ),
    "MapDataset.random_map": Case(
        lambda kit: kit.source(30).random_map(boom_with_rng, seed=1),
        "random_map(boom_with_rng, seed=1)",
    ),
    "MapDataset.map_batches": Case(
        lambda kit: kit.source(30).map_batches(boom), "map_batches(boom)"
    ),
    "MapDataset.map_batches, some dropped": Case(
        lambda kit: kit.source(30).filter(lambda element: element["id"] % 2).map_batches(boom),
        "map_batches(boom)",
    ),
    "MapDataset.filter": Case(lambda kit: kit.source(30).filter(boom_if), "filter(boom_if)"),
    "MapDataset.filter, some dropped": Case(
        lambda kit: kit.source(30).filter(is_not_third).filter(boom_if), "filter(boom_if)"
    ),
    "FlatMapMapDataset": Case(
        lambda kit: FlatMapMapDataset(kit.source(30), BoomTwice())[::2], "flat_map(BoomTwice)"
    ),
    "MapDataset.batch": Case(
        lambda kit: kit.source(30).map(boom).batch(4), "map(boom)", missing=(12, 13, 14, 15)
    ),
    "MapDataset.batch, batch_fn": Case(
        lambda kit: kit.source(30).batch(4, batch_fn=boom_batch),
        "batch(4, batch_fn=boom_batch)",
        position=3,
        missing=(12, 13, 14, 15),
    ),
    "MapDataset.select_from_datasets": Case(
        lambda kit: MapDataset.select_from_datasets(
            [kit.source(30), kit.source(30)], BoomSelection()
        ),
        "select_from_datasets(2 parts)",
    ),
    "MapDataset.concatenate": Case(
        lambda kit: MapDataset.concatenate([kit.source(10), kit.source(30)[10:].map(boom)]),
        "map(boom)",
        position=FAILING_ID - 10,
    ),
    "MapDataset subclass": Case(
        lambda kit: BoomDataset(kit.source(30)).slice(slice(1, None)), "BoomDataset"
    ),
    "source": Case(
        lambda kit: Kit("rows", (failing_parts.FAILING_ID,), kit.read).source(30),
        "source(RowSource)",
    ),
    "source, many at a time": Case(
        lambda kit: Kit("many", (failing_parts.FAILING_ID,), kit.read).source(30),
        "source(ManySource)",
    ),
    "IterDataset.map": Case(lambda kit: _stream(kit).map(boom), "map(boom)"),
    "IterDataset.map_with_index": Case(
        lambda kit: _stream(kit).map_with_index(boom_with_index),
        "map_with_index(boom_with_index)",
    ),
    # Workers get elements of a shuffled stream, and after the failure others in their place.
    "IterDataset.map, then counted": Case(
        lambda kit: (
            WindowShuffleIterDataset(_stream(kit), window_size=8, seed=1)
            .map(boom)
            .map_with_index(with_index)
        ),
        "map(boom)",
        position=10,
    ),
    "IterDataset.random_map": Case(
        lambda kit: _stream(kit).random_map(boom_with_rng, seed=1),
        "random_map(boom_with_rng, seed=1)",
    ),
    "IterDataset.map_batches": Case(
        lambda kit: _stream(kit).map_batches(boom), "map_batches(boom)"
    ),
    "IterDataset.filter": Case(lambda kit: _stream(kit).filter(boom_if), "filter(boom_if)"),
    "FlatMapIterDataset": Case(
        lambda kit: FlatMapIterDataset(_stream(kit), BoomTwice()), "flat_map(BoomTwice)"
    ),
    "IterDataset.batch": Case(
        # What came before it in the batch goes with it; the next batch starts after it.
        lambda kit: _stream(kit).map(boom).batch(4),
        "map(boom)",
        missing=(12, 13),
    ),
    "IterDataset.batch, batch_fn": Case(
        lambda kit: _stream(kit).batch(4, batch_fn=boom_batch),
        "batch(4, batch_fn=boom_batch)",
        position=3,
        missing=(12, 13, 14, 15),
    ),
    "WindowShuffleIterDataset": Case(
        lambda kit: WindowShuffleIterDataset(_stream(kit).map(boom), window_size=4, seed=1),
        "map(boom)",
        missing=(12, 13),
    ),
    "IterDataset.mix": Case(
        lambda kit: IterDataset.mix([_stream(kit).map(boom), kit.stream(2)], [14, 1]),
        "map(boom)",
    ),
    "ThreadPrefetchIterDataset": Case(
        lambda kit: ThreadPrefetchIterDataset(_stream(kit).map(boom), prefetch_buffer_size=9),
        "map(boom)",
    ),
    # Groups go on without it.
    "FirstFitPackIterDataset": Case(
        lambda kit: FirstFitPackIterDataset(
            _stream(kit).map(boom).map(ragged), length_struct={"id": 9}, num_packing_bins=3
        ),
        "map(boom)",
    ),
    "BestFitPackIterDataset": Case(
        lambda kit: BestFitPackIterDataset(
            _stream(kit).map(boom).map(ragged), length_struct={"id": 5}, num_packing_bins=99
        ),
        "map(boom)",
    ),
    "ConcatThenSplitIterDataset": Case(
        lambda kit: ConcatThenSplitIterDataset(
            _stream(kit).map(boom).map(ragged), length_struct={"id": 7, "pair": 3}
        ),
        "map(boom)",
    ),
    "RebatchIterDataset": Case(
        lambda kit: RebatchIterDataset(_stream(kit).batch(2).map(boom), 5),
        "map(boom)",
        missing=(12, 13),
    ),
    "RepeatIterDataset": Case(
        lambda kit: RepeatIterDataset(_stream(kit).map(boom), 1), "map(boom)"
    ),
    "LimitIterDataset": Case(lambda kit: LimitIterDataset(_stream(kit).map(boom), 40), "map(boom)"),
    "CacheIterDataset": Case(lambda kit: CacheIterDataset(_stream(kit).map(boom)), "map(boom)"),
    "InterleaveIterDataset": Case(
        lambda kit: InterleaveIterDataset(
            [kit.stream(5), _stream(kit).map(boom), kit.stream(3)], cycle_length=2
        ),
        "map(boom)",
    ),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def _as_stream(case: Case, kit: Kit) -> IterDataset[Any]:
    ds = case.build(kit)
    return ds.to_iter_dataset(kit.read) if isinstance(ds, MapDataset) else ds


def _ids(events: Any) -> set[int]:
    found: set[int] = set()
    for (what, _, leaves, *_), _ in events:
        for path, leaf in leaves if what == "element" else ():
            if "id" in path:
                found.update(np.ravel(leaf[-1]).tolist())
    return found


@every_case
def test_fails_where_it_fails(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    events = run_events(_as_stream(case, Kit()))
    failed = [place for place, event in enumerate(events) if is_error(event)]
    assert len(failed) == 1
    (place,) = failed
    _, kind, _, notes = events[place][0]
    assert kind in ("Boom", "BrokenRecord")
    assert notes[-1] == f"bushel: raised in `{case.operation}` at position {case.position}."
    # Before and after it everything comes that would have come.
    monkeypatch.setattr("tests.contract.failing_parts.FAILING_ID", -1)
    healthy = run_events(_as_stream(case, Kit()))
    assert _ids(events) == _ids(healthy) - set(case.missing)


@every_case
def test_the_same_however_it_runs(case: Case) -> None:
    expected = run_events(_as_stream(case, Kit()))
    for read in (INLINE, ReadOptions(1, 1), ReadOptions(2, 8), ReadOptions(16, 500)):
        assert run_events(_as_stream(case, Kit(read=read)), threaded=True) == expected
    ds = _as_stream(case, Kit())
    assert run_events(ThreadPrefetchIterDataset(ds, prefetch_buffer_size=6)) == expected
    for seed in range(5):
        assert pull_events(ds, wants_from(seed, 3 + 9 * seed)) == expected


@every_case
def test_the_state_behind_the_error_leads_behind_it(case: Case) -> None:
    ds = _as_stream(case, Kit(read=ReadOptions(2, 8)))
    events = run_events(ds)
    (place,) = (place for place, event in enumerate(events) if is_error(event))
    for threaded in (False, True):
        with iter(ds) as first, iter(ds) as second:
            for _ in range(place):
                next(first)
            before = first.get_state()
            with pytest.raises(Exception, match=r"bang|record"):
                next(first)
            second.set_state(first.get_state())
            if threaded:
                second.start_prefetch()
            assert events_of(second) == events_of(first) == events[place + 1 :]
            # Going back to before it, it fails again.
            second.set_state(before)
            with pytest.raises(Exception, match=r"bang|record"):
                next(second)
