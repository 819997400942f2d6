"""How many records a second a pipeline delivers once it runs."""

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from time import perf_counter
from typing import Any

from benchmarks import proof
from benchmarks.workload import BYTE_RATE, RATE, Make, Unit

# Long enough that a look at the clock costs nothing, short enough to stop in time.
SECONDS_BETWEEN_LOOKS = 0.005
# Sixteen threads that each work on a batch deliver all sixteen at about the same moment, so a
# reading takes two such bursts if it can, but no more than this many times its seconds.
STEPS_WANTED = 32
PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """Measures epochs of `records`, one after the other, delivered in steps of `batch_size`.

    A reading starts a new iterator and lets it run in before the clock starts, so that neither
    starting up nor what a thread did ahead of time is counted; where an epoch ends within a
    reading, the start of the next is counted, as it is in training. With `record_bytes` the rate
    is in bytes. Worker processes take seconds to start, some of them one after the other as they
    are asked for, so where there are any, the run-in begins after `start_steps`.
    """

    records: int
    batch_size: int
    proof_records: int = 1024
    record_bytes: int | None = None
    start_steps: int = 0

    @property
    def unit(self) -> Unit:
        return BYTE_RATE if self.record_bytes else RATE

    @property
    def fresh_process(self) -> bool:
        return False

    def prove(self, make: Make) -> proof.Proof:
        small = list(make(self.proof_records))
        opening = proof.first(make(self.records), 2)
        return proof.Proof(
            total=proof.total(small),
            order=proof.order(small + opening),
            outline=proof.outline(small),
        )

    def read(self, make: Make, seconds: float) -> float:
        epochs = self._epochs(make)
        stream = chain.from_iterable(epochs)
        try:
            deque(islice(stream, self.start_steps), maxlen=0)
            steps, spent = run_for(seconds / 3, stream, 1)
            between_looks = max(1, int(SECONDS_BETWEEN_LOOKS * steps / spent))
            steps, spent = run_for(seconds, stream, between_looks)
        finally:
            epochs.close()
        return steps * self.batch_size * (self.record_bytes or 1) / spent

    def _epochs(self, make: Make) -> Generator[Iterator[Any], None, None]:
        while True:
            iterator = iter(make(self.records))
            try:
                yield iterator
            finally:
                proof.close(iterator)


def run_for(seconds: float, stream: Iterator[Any], between_looks: int) -> tuple[int, float]:
    """Takes elements for about so many seconds; gives their number and the time they took."""
    steps = 0
    start = perf_counter()
    while True:
        deque(islice(stream, between_looks), maxlen=0)
        steps += between_looks
        spent = perf_counter() - start
        if spent >= seconds and (steps >= STEPS_WANTED or spent >= PATIENCE * seconds):
            return steps, spent


def take_for(seconds: float, stream: Iterator[Any], between_looks: int) -> tuple[int, float]:
    """Takes elements for about so many seconds; gives their number and the time they took."""
    taken, start = 0, perf_counter()
    while True:
        deque(islice(stream, between_looks), maxlen=0)
        taken += between_looks
        spent = perf_counter() - start
        if spent >= seconds:
            return taken, spent
