"""Workers before packing or after it: the same rows, states and failures."""

from collections.abc import Callable
from typing import Any

import pytest

from bushel import IterDataset, MapDataset
from bushel.experimental import (
    BestFitPackIterDataset,
    CacheIterDataset,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    RebatchIterDataset,
    RepeatIterDataset,
)
from tests.contract.events import events_of, run_events
from tests.streams.documents import document, shape
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import assert_same_events, workers

__all__ = ["no_endless_wait", "no_process_left_behind"]


def _documents() -> IterDataset[Any]:
    return MapDataset.range(60).shuffle(seed=1).to_iter_dataset().map(document)


PIPELINES: dict[str, Callable[[Any], Any]] = {
    "first fit": lambda ds: FirstFitPackIterDataset(
        ds, length_struct={"x": 5}, num_packing_bins=3
    ).map(shape),
    "best fit": lambda ds: BestFitPackIterDataset(
        ds.filter(lambda e: len(e["x"]) < 6), length_struct={"x": 5}, num_packing_bins=3
    ).batch(2),
    "split": lambda ds: ConcatThenSplitIterDataset(ds, length_struct={"x": 5}).map(shape),
    "rebatch": lambda ds: RebatchIterDataset(
        ConcatThenSplitIterDataset(ds, length_struct={"x": 5}).batch(3), 4
    ),
    "passes": lambda ds: LimitIterDataset(RepeatIterDataset(CacheIterDataset(ds), 2), 90).map(
        shape
    ),
    "interleave": lambda ds: InterleaveIterDataset(
        [ds, MapDataset.range(5).map(document)], cycle_length=2
    ).map(shape),
}


@pytest.mark.parametrize("where", ["before", "behind"])
@pytest.mark.parametrize("name", PIPELINES)
def test_the_same_with_workers(name: str, where: str) -> None:
    build = PIPELINES[name]
    inline = build(_documents())
    if where == "before":
        ds = build(_documents().mp_prefetch(workers(2)))
    else:
        ds = build(_documents()).mp_prefetch(workers(2))
    expected = run_events(inline)
    with iter(ds) as iterator, iter(inline) as plain:
        assert_same_events(events_of(iterator), expected)
        done = 0
        while done < len(expected) // 2:
            done += 1
            try:
                next(plain)
            except (LookupError, ValueError):
                continue
        iterator.set_state(plain.get_state())
        assert_same_events(_without_notes(events_of(iterator)), _without_notes(expected[done:]))


def _without_notes(events: Any) -> Any:
    """Notes count from the restore on."""
    return [((*what[:3], []) if what[0] == "error" else what, state) for what, state in events]
