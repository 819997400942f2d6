"""What a checkpoint of an iterator costs: the time to take it, in the middle of the data."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import proof
from benchmarks.workload import KILOBYTES, MILLISECONDS, Form, Goal, Make, Unit, Workload

LANES = 64
BATCH_SIZE = 256
WINDOW = 100
RECORDS = 1_000_000
STEPS = 200


def iterator_at_work(make: Make) -> Any:
    """An iterator that has delivered some batches."""
    iterator = iter(make(RECORDS))
    for _ in range(STEPS):
        next(iterator)
    return iterator


@dataclass(frozen=True, slots=True)
class StateTime:
    """Measures `get_state` between two batches."""

    @property
    def unit(self) -> Unit:
        return MILLISECONDS

    @property
    def fresh_process(self) -> bool:
        return False

    def prove(self, make: Make) -> proof.Proof:
        return prove_restorable(make)

    def read(self, make: Make, seconds: float) -> float:
        iterator = iterator_at_work(make)
        times: list[float] = []
        while sum(times) < seconds and len(times) < 500:
            start = perf_counter()
            iterator.get_state()
            times.append(perf_counter() - start)
            next(iterator)
        proof.close(iterator)
        return median(times) * 1000


@dataclass(frozen=True, slots=True)
class StateSize:
    """Measures a state, written as JSON."""

    @property
    def unit(self) -> Unit:
        return KILOBYTES

    @property
    def fresh_process(self) -> bool:
        return False

    def prove(self, make: Make) -> proof.Proof:
        return prove_restorable(make)

    def read(self, make: Make, seconds: float) -> float:
        iterator = iterator_at_work(make)
        size = len(json.dumps(iterator.get_state()))
        proof.close(iterator)
        return size / 1000


def prove_restorable(make: Make) -> proof.Proof:
    """Goes back to a state, written as JSON and read again, and finds the same batch."""
    iterator = iterator_at_work(make)
    state = json.loads(json.dumps(iterator.get_state()))
    expected = next(iterator)
    iterator.set_state(state)
    found = next(iterator)
    proof.close(iterator)
    if proof.order([found]) != proof.order([expected]):
        raise AssertionError("the batch after restoring is not the one after the saved state")
    return proof.of([found])


def lanes(lib: ModuleType, n: int) -> Iterable[NDArray[np.int64]]:
    ds = lib.MapDataset.range(n).shuffle(seed=1).lanes(LANES).filter(lambda x: x % 3 > 0)
    shuffled = lib.experimental.WindowShuffleIterDataset(ds, window_size=WINDOW, seed=1)
    batches: Iterable[Any] = shuffled.batch(BATCH_SIZE)
    return batches


TIME = Workload(
    name="checkpoint_time",
    title="checkpoint: time to take it",
    gauge=StateTime(),
    forms=(Form("64 lanes", lanes, Goal(1.0), grain_agrees=None),),
)
SIZE = Workload(
    name="checkpoint_size",
    title="checkpoint: its size as JSON",
    gauge=StateSize(),
    forms=(Form("64 lanes", lanes, Goal(10.0), grain_agrees=None),),
)
