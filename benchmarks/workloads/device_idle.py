"""How long a device waits for its next batch: steps of 5 ms, and a pipeline of 4 ms a batch."""

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter, sleep
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import proof
from benchmarks.workload import PERCENT, Form, Goal, Make, Unit, Workload

BATCH_SIZE = 64
WORK_S = 0.004
STEP_S = 0.005
PROOF_RECORDS = 8 * BATCH_SIZE
# Until threads, buffers and block sizes have found their way.
WARM_UP_STEPS = 100


@dataclass(frozen=True, slots=True)
class DeviceIdle:
    """Measures the share of the time in which a step could run and had no batch."""

    @property
    def unit(self) -> Unit:
        return PERCENT

    @property
    def fresh_process(self) -> bool:
        return False

    def prove(self, make: Make) -> proof.Proof:
        batches = iter(make(PROOF_RECORDS))
        seen = [np.asarray(batch) for batch in batches]
        proof.close(batches)
        return proof.of(seen)

    def read(self, make: Make, seconds: float) -> float:
        steps = max(50, int(seconds / STEP_S))
        batches = iter(make((WARM_UP_STEPS + steps + 16) * BATCH_SIZE))
        for _ in range(WARM_UP_STEPS):
            next(batches)
            sleep(STEP_S)
        waited = worked = 0.0
        for _ in range(steps):
            start = perf_counter()
            next(batches).block_until_ready()
            ready = perf_counter()
            sleep(STEP_S)  # The device works, and the host has nothing to do.
            waited += ready - start
            worked += perf_counter() - ready
        proof.close(batches)
        return 100 * waited / (waited + worked)


def work(batch: NDArray[np.int64]) -> NDArray[np.float32]:
    """Keeps a core busy for 4 ms, as decoding or augmenting in a C library would."""
    end = perf_counter() + WORK_S
    scratch = np.ones(1 << 15, np.float32)
    while perf_counter() < end:
        np.sqrt(scratch, out=scratch)
    return batch.astype(np.float32)


def to_device(lib: ModuleType, stream: Any) -> Iterable[Any]:
    import jax

    moved: Iterable[Any] = lib.experimental.device_put(stream, jax.devices()[0])
    return moved


def dataset(lib: ModuleType, n: int) -> Iterable[Any]:
    ds = lib.MapDataset.range(n).shuffle(seed=1).batch(BATCH_SIZE).map(work)
    return to_device(lib, ds.to_iter_dataset())


def stream(lib: ModuleType, n: int) -> Iterable[Any]:
    ds = lib.MapDataset.range(n).shuffle(seed=1).to_iter_dataset().filter(lambda x: x >= 0)
    return to_device(lib, ds.batch(BATCH_SIZE).map(work))


GOAL = Goal(5.0)
WORKLOAD = Workload(
    name="device_idle",
    title="device idle, steps of 5 ms, 4 ms a batch",
    gauge=DeviceIdle(),
    forms=(Form("MapDataset", dataset, GOAL), Form("stream", stream, GOAL)),
)
