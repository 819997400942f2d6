"""Resuming: the time from a saved state, far into the data, to the first batch after it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import proof
from benchmarks.workload import MILLISECONDS, Form, Goal, Make, Unit, Workload
from benchmarks.workloads.loader import epoch_loader

BATCH_SIZE = 128
RECORDS = 10_000_000
STEPS = RECORDS * 9 // 10 // BATCH_SIZE
SEED = 42
# A library that needs longer to walk to the place gets a state worked out from two early ones.
WALK_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class RestoreTime:
    """Measures `set_state` and the next batch, on an iterator that has done nothing yet."""

    @property
    def unit(self) -> Unit:
        return MILLISECONDS

    @property
    def fresh_process(self) -> bool:
        return False

    def prove(self, make: Make) -> proof.Proof:
        state, expected = state_and_next(make)
        _, batch = restored(make, state)
        if expected is not None and proof.order([batch]) != proof.order([expected]):
            raise AssertionError("the batch after restoring is not the one after the saved state")
        return proof.Proof(total=f"{len(batch)} records: {batch.dtype}", order=proof.order([batch]))

    def read(self, make: Make, seconds: float) -> float:
        state, _ = state_and_next(make)
        restored(make, state)
        times: list[float] = []
        while sum(times) < seconds and len(times) < 50:
            times.append(restored(make, state)[0])
        return median(times) * 1000


def restored(make: Make, state: Any) -> tuple[float, NDArray[np.int64]]:
    """Restores into a new iterator; gives the time in seconds and the batch."""
    iterator = iter(make(RECORDS))
    start = perf_counter()
    iterator.set_state(state)
    batch = next(iterator)
    spent = perf_counter() - start
    proof.close(iterator)
    return spent, batch


@cache
def state_and_next(make: Make) -> tuple[Any, Any]:
    """Gives a state after `STEPS` batches and the batch that follows, None if not walked there."""
    iterator = iter(make(RECORDS))
    start = perf_counter()
    early = []
    for step in range(1, STEPS + 1):
        next(iterator)
        if step <= 2:
            early.append(iterator.get_state())
        spent = perf_counter() - start
        if step > 2 and spent > 0.5 and spent / step * STEPS > WALK_LIMIT_S:
            proof.close(iterator)
            return extrapolated(early[0], early[1], STEPS), None
    state = iterator.get_state()
    if not isinstance(state, bytes):
        state = json.loads(json.dumps(state))
    expected = next(iterator)
    proof.close(iterator)
    return state, expected


def extrapolated(after_one: Any, after_two: Any, steps: int) -> Any:
    """Moves on the numbers in which two neighbouring states differ.

    >>> extrapolated({"next": 7, "version": 2}, {"next": 9, "version": 2}, 10)
    {'next': 25, 'version': 2}
    """
    if isinstance(after_one, bytes):
        moved = extrapolated(json.loads(after_one), json.loads(after_two), steps)
        return json.dumps(moved, indent=4).encode()
    if isinstance(after_one, dict):
        return {key: extrapolated(after_one[key], after_two[key], steps) for key in after_one}
    if isinstance(after_one, int):
        return after_one + (after_two - after_one) * (steps - 1)
    return after_one


class OrderByHand:
    """Resumes as a loop by hand does: makes the whole order again and goes to the place."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.step = 0
        self.order: NDArray[np.int64] | None = None

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return self

    def __next__(self) -> NDArray[np.int64]:
        if self.order is None:
            self.order = np.random.default_rng(SEED).permutation(self.n)
        start = self.step * BATCH_SIZE
        self.step += 1
        return self.order[start : start + BATCH_SIZE]

    def get_state(self) -> int:
        return self.step

    def set_state(self, step: int) -> None:
        self.step = step


def dataset(lib: ModuleType, n: int) -> Iterable[NDArray[np.int64]]:
    pipeline: Iterable[Any] = lib.MapDataset.range(n).shuffle(seed=SEED).batch(BATCH_SIZE)
    return pipeline


def loader(lib: ModuleType, n: int) -> Iterable[NDArray[np.int64]]:
    source = lib.sources.RangeDataSource(0, n, 1)
    return epoch_loader(lib, source, [lib.transforms.Batch(batch_size=BATCH_SIZE)], SEED)


GOAL = Goal(5.0)
WORKLOAD = Workload(
    name="restore",
    title="restore at 90% of 10M records",
    gauge=RestoreTime(),
    hand=OrderByHand,
    forms=(Form("MapDataset", dataset, GOAL), Form("DataLoader", loader, GOAL)),
)
