"""Pipelines and functions that run on a cluster."""

import os
import signal
import time
from typing import Any

import numpy as np

import bushel

DEADLY = 333


def noisy(x: int, rng: np.random.Generator) -> int:
    time.sleep(0.001)
    return x + 1000 * int(rng.integers(100))


def is_no_fifth(x: int) -> bool:
    return x % 5 != 0


def doubled(batch: Any) -> Any:
    return batch * 2


def noisy_at_once(x: int, rng: np.random.Generator) -> int:
    return x + 1000 * int(rng.integers(100))


def pipeline(change: Any = noisy) -> bushel.IterDataset[Any]:
    """Both kinds of steps: those by position, and those that depend on what was before."""
    ds = bushel.MapDataset.range(600).seed(3).shuffle().repeat(2).random_map(change)
    return ds.to_iter_dataset().filter(is_no_fifth).batch(8).map(doubled)


def ends_its_process(x: int) -> int:
    if x == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def large(x: int) -> Any:
    return np.full(1 << 18, x, np.float32)


def fails_at_17(x: int) -> int:
    return {17: {}}.get(x, {"there": x})["there"]
