"""Advice: given where it is true, and not where it is not; what it says to write is better."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bushel import (
    DataLoader,
    IterDataset,
    MapDataset,
    MultiprocessingOptions,
    NoSharding,
    ReadOptions,
    transforms,
)
from bushel.experimental import InterleaveIterDataset, WindowShuffleIterDataset
from bushel.samplers import IndexSampler
from tests.contract.parts import double, double_columns, is_not_third, jitter, ragged
from tests.grain.oracle import blocks_of
from tests.watch.pipelines import Own, records, stream

_WORKERS = MultiprocessingOptions(num_workers=2)
_INLINE = ReadOptions(0, 0)


def _advice(ds: Any) -> str:
    return "\n".join(ds.explain().advice)


def _of_workers(ds: IterDataset[Any]) -> IterDataset[Any]:
    return ds.mp_prefetch(_WORKERS)


def _loader(epochs: int | None) -> DataLoader[Any]:
    sampler = IndexSampler(9, NoSharding(), shuffle=True, num_epochs=epochs, seed=3)
    return DataLoader(data_source=range(9), sampler=sampler, operations=[transforms.Batch(2)])


def _restarted() -> IterDataset[Any]:
    return IterDataset.mix([stream(), stream()], on_end="restart")


# What the sentence begins with; where it is said; what to write instead, and others like it.
CASES: dict[str, tuple[str, Callable[[], Any], list[Callable[[], Any]]]] = {
    "a second trip": (
        "`map(double)` comes after the cut at `batch(4)` and makes another trip",
        lambda: _of_workers(stream().filter(is_not_third).batch(4).map(double)),
        [
            lambda: _of_workers(stream().filter(is_not_third).map(double).batch(4)),
            lambda: _of_workers(stream().filter(is_not_third).batch(4)).map(double),
            lambda: _of_workers(stream().batch(4).map(double)),
            lambda: stream().filter(is_not_third).batch(4).map(double),
            # The first trip.
            lambda: _of_workers(Own(stream()).map(double)),
        ],
    ),
    "a filter before a batch": (
        "`batch(4)` runs here, as `filter(is_not_third)` before it leaves elements out",
        lambda: _of_workers(stream().map(double).filter(is_not_third).map(double).batch(4)),
        [
            lambda: _of_workers(
                records().map(double).filter(is_not_third).compact().batch(4).to_iter_dataset()
            ),
            lambda: _of_workers(stream().map(double).batch(4)),
            lambda: stream().filter(is_not_third).batch(4),
            # The filter comes after a step that no random-access dataset has.
            lambda: _of_workers(stream().map(ragged).pack({"id": 7}).filter(bool).batch(4)),
            lambda: _of_workers(records().lanes(2).filter(is_not_third).batch(4)),
        ],
    ),
    "a shuffle after a batch": (
        "`shuffle(seed=2)` comes after `batch(4)` and shuffles whole batches",
        lambda: records().batch(4).map(double).shuffle(seed=2),
        [
            lambda: records().shuffle(seed=2).batch(4).map(double),
            lambda: records().shuffle(seed=1).batch(4).shuffle(seed=2),
            lambda: records().batch(4).unbatch().shuffle(seed=2),
        ],
    ),
    "a shuffle after a batch, in a stream": (
        "`shuffle(5, seed=2)` comes after `batch(4)` and shuffles whole batches",
        lambda: stream().filter(is_not_third).batch(4).shuffle(5, seed=2),
        [lambda: stream().filter(is_not_third).shuffle(5, seed=2).batch(4)],
    ),
    "columns of batches": (
        "`map_batches(double_columns)` after `batch(4)` gets several batches in one call",
        lambda: records().batch(4).map_batches(double_columns),
        [
            lambda: records().batch(4).map(double_columns),
            lambda: records().map_batches(double_columns).batch(4),
        ],
    ),
    "a buffer where all could be shuffled": (
        "`shuffle(10, seed=1)` mixes neighbours only",
        lambda: stream().map(double).shuffle(10, seed=1),
        [
            lambda: records().shuffle(seed=1).to_iter_dataset().map(double),
            lambda: stream().filter(is_not_third).shuffle(10, seed=1),
            lambda: IterDataset.mix([stream(), stream()]).shuffle(10, seed=1),
            lambda: records().lanes(2).shuffle(10, seed=1).batch(4),
            lambda: records().shuffle(seed=2).to_iter_dataset().shuffle(10, seed=1),
        ],
    ),
    "a window where all could be shuffled": (
        "`window_shuffle",
        lambda: WindowShuffleIterDataset(stream(), window_size=10, seed=1),
        [lambda: WindowShuffleIterDataset(stream().filter(is_not_third), window_size=10, seed=1)],
    ),
    "a map after the threads": (
        "`map(double)` comes after `to_iter_dataset()` and runs in the thread of your loop",
        lambda: stream().map(double).map(ragged),
        [
            lambda: records().map(double).to_iter_dataset(),
            lambda: records().to_iter_dataset(_INLINE).map(double),
            lambda: _of_workers(stream().map(double)),
            lambda: stream().filter(is_not_third).map(double),
            lambda: stream().batch(4).map(double),
        ],
    ),
    "workers with nothing to do": (
        "`mp_prefetch(num_workers=2)` has nothing to do",
        lambda: _of_workers(InterleaveIterDataset([stream(), stream()], cycle_length=2)),
        [
            lambda: InterleaveIterDataset(
                [_of_workers(stream()), _of_workers(stream())], cycle_length=2
            ),
            lambda: _of_workers(IterDataset.mix([stream(), stream()])),
            lambda: _of_workers(stream()),
        ],
    ),
    "workers that only copy": (
        "`mp_prefetch(num_workers=2)` has workers read what is in memory already",
        lambda: _of_workers(
            MapDataset.source(np.zeros((99, 3))).shuffle(seed=1).batch(4).to_iter_dataset()
        ),
        [
            lambda: MapDataset.source(np.zeros((99, 3))).batch(4).to_iter_dataset(),
            lambda: _of_workers(
                MapDataset.source(np.zeros((99, 3))).map(double).batch(4).to_iter_dataset()
            ),
            lambda: _of_workers(records().batch(4).to_iter_dataset()),
            lambda: _of_workers(
                MapDataset.range(9).batch(4, batch_fn=ragged).to_iter_dataset()  # type: ignore[arg-type]
            ),
        ],
    ),
    "random numbers that are remembered": (
        "`cache()` remembers what `random_map(jitter, seed=1)` drew",
        lambda: stream().random_map(jitter, seed=1).cache().repeat(2),
        [
            lambda: stream().cache().repeat(2).random_map(jitter, seed=1),
            lambda: stream().map(double).cache().repeat(2),
        ],
    ),
    "a mixture that never ends": (
        "`mix(2 parts, proportions=[1, 1], on_end='restart')` never ends",
        _restarted,
        [
            lambda: _restarted().take(100),
            lambda: IterDataset.mix([stream(), stream()]),
            lambda: records().repeat(),
            lambda: stream().repeat(),
        ],
    ),
    "a loader that never ends": (
        "`IndexSampler(",
        lambda: _loader(None),
        [lambda: _loader(2)],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_given_where_it_is_true(
    case: tuple[str, Callable[[], Any], list[Callable[[], Any]]],
) -> None:
    begins, build, others = case
    assert begins in _advice(build())
    for other in others:
        assert begins not in _advice(other())


def test_what_it_says_of_random_numbers() -> None:
    def epochs(ds: IterDataset[Any]) -> tuple[Any, Any]:
        elements = [repr(element) for element in ds]
        return elements[:5], elements[5:]

    first, again = epochs(stream(5).random_map(jitter, seed=1).cache().repeat(2))
    assert first == again
    first, again = epochs(stream(5).cache().repeat(2).random_map(jitter, seed=1))
    assert first != again


def test_what_it_says_of_shuffled_batches() -> None:
    def batches(ds: MapDataset[Any]) -> tuple[set[Any], set[Any]]:
        made = [tuple(sorted(batch["id"].tolist())) for batch in ds.repeat(2)]
        return set(made[: len(ds)]), set(made[len(ds) :])

    first, again = batches(records(40).batch(4).shuffle(seed=2))
    assert first == again
    first, again = batches(records(40).shuffle(seed=2).batch(4))
    assert first != again
    first, again = batches(records(40).shuffle(seed=1).batch(4).shuffle(seed=2))
    assert first != again


def test_what_it_says_of_columns_of_batches() -> None:
    shapes = []

    def noted(columns: Any) -> Any:
        shapes.append(columns["id"].shape)
        return columns

    with blocks_of(5):
        list(records(400).batch(4).map_batches(noted))
    assert {shape[1] for shape in shapes} == {4}
    assert max(shape[0] for shape in shapes) > 1


def test_the_same_is_said_once() -> None:
    parts = [stream().map(double).shuffle(10, seed=1), stream().shuffle(10, seed=1).map(double)]
    advice = IterDataset.mix(parts).explain().advice
    assert len(advice) == len(set(advice))
    assert sum("mixes neighbours only" in sentence for sentence in advice) == 1
