"""A dataset of 10^18 elements costs what one of 10^6 does: positions, records, state, memory."""

import json
import tracemalloc
from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.core.rng import _layout_is_known
from bushel.run.inline import compile_node
from tests.growth.counting import CountingSource, counting_shuffles

LENGTHS = [10**power for power in (3, 6, 9, 12, 18)]
BATCH, STEPS = 32, 200
# Shuffles look ahead, as far as they know how fast they are: not further than that.
MOST_AHEAD = 4 * 8192


@pytest.mark.parametrize("length", LENGTHS)
def test_positions_located_do_not_grow(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = bushel.MapDataset.range(length).shuffle(seed=1).repeat().to_iter_dataset()
    with counting_shuffles(monkeypatch) as located:
        stream = iter(dataset.batch(BATCH))
        for _ in range(STEPS):
            next(stream)
    assert 0 < located.positions <= BATCH * STEPS + MOST_AHEAD


@pytest.mark.parametrize("sizes", [[1], [32, 8192], [8192], [1, 100, 8192, 3], [700, 5000]])
def test_positions_located_do_not_go_by_the_size_of_blocks(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How large blocks are is learned from the clock; how far a shuffle looks must not be."""
    evaluator = compile_node(bushel.MapDataset.range(10**9).shuffle(seed=1)._own_node())
    start = 0
    with counting_shuffles(monkeypatch) as located:
        for size in islice(cycle(sizes), 100):
            evaluator.run(start, start + size)
            assert located.positions <= start + MOST_AHEAD
            start += size


@pytest.mark.parametrize("length", LENGTHS)
def test_state_does_not_grow(length: int) -> None:
    stream = iter(bushel.MapDataset.range(length).shuffle(seed=1).repeat().to_iter_dataset())
    for _ in range(700):
        next(stream)
    assert len(json.dumps(stream.get_state())) < 200


def test_restoring_reads_what_comes_next_and_nothing_before() -> None:
    source = CountingSource(10**12)
    dataset = bushel.MapDataset.source(source).shuffle(seed=1).to_iter_dataset().batch(BATCH)
    far = iter(dataset)
    bushel.experimental.set_next_index(far, 9 * 10**11 // BATCH)
    state = far.get_state()
    stream = iter(dataset)
    stream.set_state(state)
    source.calls.clear()
    batch = next(stream)
    assert len(batch) == BATCH
    assert source.records <= 8 * BATCH


def test_elements_in_memory_do_not_grow() -> None:
    def peak(length: int) -> int:
        stream = iter(bushel.MapDataset.range(length).shuffle(seed=1).to_iter_dataset().batch(8))
        next(stream)
        tracemalloc.start()
        try:
            for _ in range(100):
                next(stream)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # (10^6 has its permutation's tables in common with 10^9.)
    assert peak(10**18) < 2 * peak(10**6) + 2_000_000


def test_an_epoch_of_any_length_is_a_permutation_at_its_ends() -> None:
    """Positions of 10^18 stay within it, and no two are the same."""
    length = 10**18
    shuffled = bushel.MapDataset.range(length).shuffle(seed=1)
    ends = [shuffled[i] for i in [*range(50), *range(length - 50, length)]]
    assert len(set(ends)) == 100
    assert min(ends) >= 0 and max(ends) < length


@pytest.mark.parametrize("length", LENGTHS)
def test_generators_are_not_made_for_each_record(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Counted(np.random.Philox):
        def __init__(self, *args: Any, **more: Any) -> None:
            made.append(1)
            super().__init__(*args, **more)

    assert _layout_is_known()  # That takes two.
    monkeypatch.setattr(np.random, "Philox", Counted)
    dataset = (
        bushel.MapDataset.range(length).repeat().to_iter_dataset(bushel.ReadOptions(num_threads=0))
    )
    stream = iter(dataset.random_map(lambda x, rng: x + rng.random(), seed=2).batch(BATCH))
    for _ in range(STEPS):
        next(stream)
    # One for all records, and one that tells the key.
    assert len(made) <= 2
