"""Streams of numbers through one operation each: what the operation itself costs."""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, repeat
from time import process_time
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import proof
from benchmarks.throughput import Throughput, run_for
from benchmarks.workload import Form, Goal, Make, Unit, Workload

NUMBERS = 160_000
WINDOW = 1000
PARTS = 16
WEIGHTS = (0.4, 0.3, 0.2, 0.1)
SIZE_BEFORE, SIZE_AFTER = 8, 13


def numbers(lib: ModuleType, n: int, start: int = 0) -> Any:
    made = lib.MapDataset.range(start, start + n)
    return made.to_iter_dataset(lib.ReadOptions(num_threads=0))


def window_shuffle(lib: ModuleType, n: int) -> Iterable[int]:
    shuffled: Iterable[int] = lib.experimental.WindowShuffleIterDataset(
        numbers(lib, n), window_size=WINDOW, seed=n
    )
    return shuffled


def window_shuffle_by_hand(n: int) -> Iterator[int]:
    source = iter(range(n))
    while window := list(islice(source, WINDOW)):
        random.shuffle(window)
        yield from window


def interleave(lib: ModuleType, n: int) -> Iterable[int]:
    size = n // PARTS
    parts = [numbers(lib, size, size * part) for part in range(PARTS)]
    taken: Iterable[int] = lib.experimental.InterleaveIterDataset(parts, cycle_length=PARTS)
    return taken


def interleave_by_hand(n: int) -> Iterator[int]:
    size = n // PARTS
    parts = [range(size * part, size * part + size) for part in range(PARTS)]
    return chain.from_iterable(zip(*parts, strict=True))


def mix(lib: ModuleType, n: int) -> Iterable[int]:
    parts = [numbers(lib, n) for _ in WEIGHTS]
    return lib.IterDataset.mix(parts, WEIGHTS)  # type: ignore[no-any-return]


def rebatch(lib: ModuleType, n: int) -> Iterable[Any]:
    batches = lib.MapDataset.range(n).batch(SIZE_BEFORE)
    stream = batches.to_iter_dataset(lib.ReadOptions(num_threads=0))
    changed: Iterable[Any] = lib.experimental.RebatchIterDataset(stream, SIZE_AFTER)
    return changed


def rebatch_by_hand(n: int) -> Iterator[Any]:
    waiting: list[Any] = []
    count = 0
    for start in range(0, n, SIZE_BEFORE):
        waiting.append(np.arange(start, min(n, start + SIZE_BEFORE)))
        count += len(waiting[-1])
        while count >= SIZE_AFTER:
            joined = np.concatenate(waiting)
            yield joined[:SIZE_AFTER]
            waiting, count = [joined[SIZE_AFTER:]], count - SIZE_AFTER
    if count:
        yield np.concatenate(waiting)


def several(lib: ModuleType, n: int) -> dict[str, Iterable[int]]:
    """One stream for each operation that hands numbers on."""
    more = lib.experimental
    return {
        "limit": more.LimitIterDataset(numbers(lib, n), n),
        "repeat": more.RepeatIterDataset(numbers(lib, n // 4), 4),
        "zip": more.ZipIterDataset([numbers(lib, n), numbers(lib, n)]),
        "map_with_index": numbers(lib, n).map_with_index(lambda index, number: number),
        "interleave": interleave(lib, n),
        "mix": mix(lib, n),
    }


@dataclass(frozen=True, slots=True)
class WorstOverhead:
    """Measures the time for an element of whichever stream takes longest for one."""

    numbers: int

    @property
    def unit(self) -> Unit:
        return Unit("us", more_is_better=False)

    @property
    def fresh_process(self) -> bool:
        return False

    def prove(self, make: Make) -> proof.Proof:
        streams: Mapping[str, Iterable[int]] = make(1024)
        return proof.of([element for stream in streams.values() for element in stream])

    def read(self, make: Make, seconds: float) -> float:
        streams: Mapping[str, Iterable[int]] = make(self.numbers)
        return max(_time_of_one(stream, seconds / len(streams)) for stream in streams.values())


def _time_of_one(stream: Iterable[int], seconds: float) -> float:
    """Processor time, since an absolute limit should not depend on who else uses the machine."""
    elements = chain.from_iterable(repeat(stream))
    run_for(seconds / 3, elements, 512)
    start = process_time()
    steps, _ = run_for(seconds, elements, 512)
    return (process_time() - start) / steps * 1e6


WINDOW_SHUFFLE = Workload(
    name="window_shuffle",
    title=f"stream shuffled in windows of {WINDOW:,}",
    gauge=Throughput(NUMBERS, 1),
    hand=window_shuffle_by_hand,
    forms=(Form("", window_shuffle, Goal(10, "grain")),),
)
INTERLEAVE = Workload(
    name="interleave",
    title=f"{PARTS} streams in turn",
    gauge=Throughput(NUMBERS, 1),
    hand=interleave_by_hand,
    forms=(Form("", interleave, Goal(10, "grain")),),
)
MIX = Workload(
    name="mix_streams",
    title=f"{len(WEIGHTS)} streams mixed by weight",
    gauge=Throughput(NUMBERS, 1),
    forms=(Form("", mix, Goal(10, "grain")),),
)
REBATCH = Workload(
    name="rebatch",
    title=f"batches of {SIZE_BEFORE} made batches of {SIZE_AFTER}",
    gauge=Throughput(NUMBERS, SIZE_AFTER),
    hand=rebatch_by_hand,
    forms=(Form("", rebatch, Goal(10, "grain")),),
)
OVERHEAD = Workload(
    name="stream_overhead",
    title="an element of the slowest of six cheap streams",
    gauge=WorstOverhead(NUMBERS),
    forms=(Form("", several, Goal(1)),),
)
