"""The values that `profile` computes and `simulate` takes: `Costs` of an element, of each step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

# A step that is on a core for less than this share of its time waits for something.
WAITS = 0.5
# A step that holds the interpreter's lock for less than this share of its time lets others work.
_LETS_OTHERS = 0.5
# Of `Costs`, what is work and what is a time.
_WORK = ("in_workers", "beside_workers", "on_threads", "beside_threads")
_SECONDS = ("sending_seconds", "taking_seconds", "placed_seconds", "fresh_seconds")


@dataclass(frozen=True, slots=True)
class ElementWork:
    """Seconds of work for one element of a stream.

    By the clock less the queue for a core, of that on a core, and of that under the interpreter's
    lock.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    lock_seconds: float = 0.0

    def __add__(self, other: "ElementWork") -> "ElementWork":
        return ElementWork(
            self.seconds + other.seconds,
            self.cpu_seconds + other.cpu_seconds,
            self.lock_seconds + other.lock_seconds,
        )

    def times(self, factor: float) -> "ElementWork":
        """So many times as much."""
        return ElementWork(
            factor * self.seconds, factor * self.cpu_seconds, factor * self.lock_seconds
        )

    def less(self, cpu_seconds: float) -> "ElementWork":
        """The same without so much of its time on a core, of which something is left."""
        if not self.cpu_seconds:
            return self
        left = max(0.2, 1 - cpu_seconds / self.cpu_seconds)
        saved = (1 - left) * self.cpu_seconds
        return ElementWork(self.seconds - saved, left * self.cpu_seconds, left * self.lock_seconds)

    @property
    def cpu_share(self) -> float:
        """The share of its time on a core."""
        return min(1.0, self.cpu_seconds / self.seconds) if self.seconds else 1.0


@dataclass(frozen=True, slots=True)
class TriedRun:
    """How a pipeline did when it was run for a moment, with so many workers or with threads."""

    workers: int
    # From one element to the next.
    seconds: float
    # Of the thread that asks, on a core, for an element.
    here_seconds: float
    # Until the first element.
    first_seconds: float = 0.0
    # What the loop slept for each element.
    step_seconds: float = 0.0
    # How many times as long elements took in its second half: as a logarithm.
    drift: float = 0.0
    # Of memory that all worker processes had for themselves; 0 where nobody tells.
    worker_bytes: int = 0
    # Requests to a store far away for an element, of threads: those of workers are not counted.
    requests: float = 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What one element of a stream costs, by where the work can be done."""

    # Steps that worker processes would do, and those that stay here all the same.
    in_workers: ElementWork
    beside_workers: ElementWork
    # Steps that threads of this process could do, and those that stay in the thread that asks.
    on_threads: ElementWork
    beside_threads: ElementWork
    # To send what workers have made, there, and to take it, here.
    sending_seconds: float
    taking_seconds: float
    # Opening, and filling what is to be full before the first element comes.
    opening_seconds: float
    # Of an element, and of what the sources of it are read; how many records that are, and how
    # many requests to a store far away.
    bytes: float
    source_bytes: float
    source_records: float
    requests: float
    # Bytes that steps which threads could do make for it, all in all.
    made_bytes: float
    # The most threads that read options allow.
    most_threads: int
    # What pieces of about 50 ms took, in relation to their mean, the least first.
    spread: tuple[float, ...] = (1.0,)
    # Of sending, what workers need not do that make batches where they are sent from; and of their
    # work, what new memory takes, as they use theirs again.
    placed_seconds: float = 0.0
    fresh_seconds: float = 0.0
    # Runs of a moment with threads and workers, on so many cores.
    trials: tuple[TriedRun, ...] = ()
    cores: float = 1.0
    # How far times may be from these, on this machine: as a share of them.
    unsure: float = 0.0

    def times(self, factor: float) -> "Costs":
        """The same where all that is done takes so many times as long."""
        work = {name: getattr(self, name).times(factor) for name in _WORK}
        seconds = {name: factor * getattr(self, name) for name in _SECONDS}
        trials = tuple(
            replace(
                run,
                seconds=run.step_seconds + factor * max(0.0, run.seconds - run.step_seconds),
                here_seconds=factor * run.here_seconds,
            )
            for run in self.trials
        )
        return replace(self, **work, **seconds, trials=trials)

    @property
    def whole(self) -> ElementWork:
        """All steps."""
        return self.in_workers + self.beside_workers

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Costs":
        """Makes it of what `dataclasses.asdict` gave."""
        made: dict[str, Any] = dict(values, spread=tuple(values["spread"]))
        made.update((name, ElementWork(**values[name])) for name in _WORK)
        made["trials"] = tuple(TriedRun(**run) for run in values.get("trials", ()))
        return cls(**made)


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step costs, on a sample, in the thread that asks."""

    name: str
    # Where it runs in the pipeline as it is written: "here", "thread" or "workers".
    place: str
    # How many steps this stands for: the same one in so many parts of a mixture.
    parts: int
    records: int
    records_are_estimated: bool
    # Its own time, without the queue for a core; and its share of that of all steps.
    seconds: float
    share: float
    # The share of its time on a core.
    cpu_share: float
    # The share of its time under the interpreter's lock; None where there were too few looks.
    lock_share: float | None
    # Bytes of what it makes of a record; None where it makes nothing.
    bytes_each: float | None
    longest_call_seconds: float
    longest_call_at: int
    # Its number in the pipeline, from 0 for the first on.
    number: int

    @property
    def seconds_per_record(self) -> float:
        """Own time for each record."""
        return self.seconds / self.records if self.records else 0.0

    @property
    def remark(self) -> str:
        """What that means for threads and workers."""
        if self.cpu_share < WAITS:
            return "waits: threads help"
        if self.lock_share is None:
            return ""
        if self.lock_share < _LETS_OTHERS:
            return "releases the GIL: threads help"
        return "holds the GIL: workers help"
