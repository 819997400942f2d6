"""Streams with workers, compared with the same streams without."""

import os
from typing import Any

import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions
from tests.contract.events import Event, freeze, freeze_error, is_error

INLINE = ReadOptions(0, 0)


def workers(count: int, **more: Any) -> MultiprocessingOptions:
    return MultiprocessingOptions(num_workers=count, **more)


def with_workers(ds: Any, count: int, **more: Any) -> IterDataset[Any]:
    """A dataset as a stream that workers evaluate."""
    stream = ds.to_iter_dataset(INLINE) if isinstance(ds, MapDataset) else ds
    made: IterDataset[Any] = stream.mp_prefetch(workers(count, **more))
    return made


def pids_without_end(count: int, **more: Any) -> IterDataset[Any]:
    """A stream whose elements are the pids of the workers that made them."""
    return with_workers(MapDataset.range(10**9).map(lambda _: os.getpid()), count, **more)


def make_loader(
    *operations: Any, workers: int | None, source: Any = None, count: int = 60, **more: Any
) -> "bushel.DataLoader[Any]":
    """A loader over shuffled numbers, or over another source."""
    more.setdefault("sampler", bushel.IndexSampler(count, shuffle=True, num_epochs=1, seed=5))
    return bushel.DataLoader(
        data_source=bushel.RangeDataSource(0, count, 1) if source is None else source,
        operations=operations,
        worker_count=workers,
        **more,
    )


def assert_same_events(events: list[Event], expected: list[Event]) -> None:
    """Compares events; to an error from a worker, notes may have been added."""
    assert len(events) == len(expected)
    for event, wanted in zip(events, expected, strict=True):
        if is_error(event) and is_error(wanted):
            (kind, name, text, notes), state = event
            event = (kind, name, text, [note for note in notes if note in wanted[0][3]]), state
        assert event == wanted


def signed_events(iterator: Any) -> list[Any]:
    """What is left in an iterator: elements or errors, and the whole states behind them."""
    events = []
    while True:
        try:
            what = freeze(next(iterator))
        except StopIteration:
            return events
        except Exception as error:
            what = freeze_error(error)[:3]
        events.append((what, iterator.get_state()))
        assert len(events) < 5000, "this stream does not end"
