"""`bushel.simulate`: predicts a training on a cluster from the costs of a pipeline."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bushel.core.arguments import real, whole
from bushel.errors import PlanError
from bushel.watch.costs import Costs
from bushel.watch.durations import duration, percent
from bushel.watch.html import piece
from bushel.watch.plain_text import number, paragraph, plural, size
from bushel.watch.profile import profile_to_simulate
from bushel.watch.profile_variants import stream_of
from bushel.watch.profiled import Profile, rate_text
from bushel.watch.simulated_makers import Setting
from bushel.watch.simulated_run import MOST_WORKERS, Simulated, simulated

# Memory that a worker has for itself where none was tried, and the process that workers come from:
# the interpreter, numpy and what they write to of that.
_WORKER_BYTES, _NURSERY_BYTES = 20 << 20, 12 << 20
# Elements that are with the training while it asks for the next one: that one and the last.
_WITH_THE_TRAINING = 2
# Elements that are larger take as long for their memory as for what is in it.
_LARGE_BYTES = 4 << 20
# The share of their time that threads hold the lock, from which on they are in each other's way.
_MUCH_LOCK = 0.3
# Steps that are on a core for less than this share of their time gain by threads in any case.
_WAITS = 0.5


@dataclass(frozen=True, slots=True)
class Simulation:
    """What would become of a training. `print` shows it; `to_dict()` has it as plain values.

    Times and figures of a host are those of each; the hosts are alike.
    """

    hosts: int
    workers: int
    # Threads of the process that trains, which the engine would use there.
    threads: int
    cores: float
    step_seconds: float
    bandwidth: float | None
    steps: int
    # Of a host: all steps, what it waited for data of its own, and for other hosts.
    elapsed_seconds: float
    wait_seconds: float
    wait_for_hosts_seconds: float
    first_seconds: float
    # Steps a second, once it runs.
    steps_per_second: float
    # The share of its time, once it runs, that the training waits.
    wait_share: float
    # Of the time of workers or threads.
    busy_share: float
    # Of all hosts: records that are read, their bytes, and requests to a store far away.
    records: int
    bytes: int
    requests: int
    # Of a host, about: what is made or under way before it is asked for or still with the
    # training, and what workers have for themselves.
    memory_bytes: int
    # How far the time may be from that, as a share of it, as far as runs of the sample differ; and
    # steps a second then, at the least and at the most.
    unsure: float = 0.0
    least_per_second: float = 0.0
    most_per_second: float = 0.0
    # What it holds on, and where it was found to be further from real runs than elsewhere.
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON takes."""
        return {**asdict(self), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Simulation":
        """Makes it of what `to_dict` gave."""
        return cls(**{**values, "notes": tuple(values.get("notes", ()))})

    def __str__(self) -> str:
        return "\n".join(paragraph(title, text) for title, text in self._remarks())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return piece(self._remarks())

    def _range(self) -> str:
        if self.most_per_second <= 1.01 * self.least_per_second:
            return ""
        least, most = map(rate_text, (self.least_per_second, self.most_per_second))
        return f" (from {least} to {most})"

    def _remarks(self) -> list[tuple[str, str]]:
        makers = f"{plural(self.workers, 'worker')} each" if self.workers else "no workers"
        if self.threads:
            makers = f"{plural(self.threads, 'thread')} each"
        way = "" if self.bandwidth is None else f", {size(round(self.bandwidth))}/s to each"
        remarks = [
            ("simulated", f"{plural(self.hosts, 'host')}, {makers}, {self.cores:g} cores{way}"),
            (
                "time",
                f"{plural(self.steps, 'step')} of {duration(self.step_seconds)} in "
                f"{duration(self.elapsed_seconds)}, {rate_text(self.steps_per_second)}"
                f"{self._range()}; the first after {duration(self.first_seconds)}",
            ),
            (
                "wait",
                f"{percent(self.wait_share)} of the time once it runs "
                f"({duration(self.wait_seconds)} in all"
                + (
                    f", and {duration(self.wait_for_hosts_seconds)} for the slowest host)"
                    if self.hosts > 1
                    else ")"
                ),
            ),
            (
                "data",
                f"{plural(self.records, 'record') if self.records else 'records not counted'}, "
                f"{size(self.bytes)}, {number(self.requests)} requests to stores, by all hosts",
            ),
            (
                "memory",
                f"{size(self.memory_bytes)} a host for what is ready or under way, and for workers",
            ),
        ]
        if self.workers or self.threads:
            who = "workers" if self.workers else "threads"
            remarks.append((who, f"busy {percent(self.busy_share)} of their time"))
        return [*remarks, *(("provided", note) for note in self.notes)]


def simulate(
    dataset: Any,
    *,
    hosts: int = 1,
    workers: int | None = None,
    step_seconds: float = 0.0,
    bandwidth: float | None = None,
    cores: float | None = None,
    steps: int = 1000,
    seconds: float = 4.0,
) -> Simulation:
    """Tells what would become of a training with other hosts and workers than there are here.

    What each element costs is measured here (or was, where a `Profile` is handed in), also with
    threads, or with as many workers, of which no more than there are cores; the rest is counted:
    when each task begins and ends on each host, who waits for whom, and what is in memory.
    All hosts take a step together. Each reads elements of its own, as many as the others.

    >>> import bushel
    >>> dataset = bushel.MapDataset.range(100_000).map(abs).batch(100)
    >>> told = bushel.simulate(dataset, hosts=8, workers=4, step_seconds=0.1, seconds=0.2)
    >>> told.hosts, told.workers, told.records, told.wait_share < 0.01
    (8, 4, 800000, True)

    Args:
      dataset: a dataset or a `DataLoader`, of which a sample is read; or what `bushel.profile`
        gave for one.
      hosts: how many train together.
      workers: worker processes of each host; as many as the pipeline has if it is None.
      step_seconds: the time that the training takes for an element.
      bandwidth: bytes a second from where the data is to each host; None where the data comes as
        fast as it does here.
      cores: of each host; as many as there are here if it is None.
      steps: of the training.
      seconds: about so long is measured, where that was not done before.
    """
    if whole(hosts, "hosts") < 1:
        raise PlanError(f"hosts is how many train together, at least 1, and cannot be {hosts}.")
    if workers is not None and not 0 <= whole(workers, "workers") <= MOST_WORKERS:
        raise PlanError(
            f"workers is how many processes each host has, from 0 to {MOST_WORKERS:,}, and cannot "
            f"be {workers:,}."
        )
    if whole(steps, "steps") < 1:
        raise PlanError(f"steps is how long the training is, at least 1, and cannot be {steps}.")
    if not 0 <= real(step_seconds, "step_seconds") < float("inf"):
        raise PlanError(
            f"step_seconds is how long the training takes for an element, and cannot be "
            f"{step_seconds!r}."
        )
    for name, value in (("bandwidth", bandwidth), ("cores", cores)):
        if value is not None and not real(value, name) > 0:
            raise PlanError(f"{name} must be more than 0, and is {value!r}.")
    measured = dataset
    if not isinstance(dataset, Profile):
        stream_of(dataset, "bushel.simulate", ", or the Profile of one (of `bushel.profile`)")
        measured = profile_to_simulate(dataset, workers, cores, seconds)
    costs = measured.costs
    setting = Setting(
        workers=measured.workers if workers is None else workers,
        threads=costs.most_threads,
        buffer=measured.buffer,
        cores=measured.cores if cores is None else cores,
        hosts=hosts,
        step_seconds=step_seconds,
        bandwidth=bandwidth,
        steps=steps,
    )
    return _told(setting, costs)


def _told(setting: Setting, costs: Costs) -> Simulation:
    run = simulated(costs, setting)
    slow, fast = (
        simulated(costs.times(factor), setting).per_second
        for factor in (1 + costs.unsure, 1 / (1 + costs.unsure))
    )
    elements = setting.hosts * setting.steps
    memory = (run.ahead + _WITH_THE_TRAINING) * costs.bytes + _bytes_of_workers(costs, run.workers)
    return Simulation(
        hosts=setting.hosts,
        workers=run.workers,
        threads=run.threads,
        cores=setting.cores,
        step_seconds=setting.step_seconds,
        bandwidth=setting.bandwidth,
        steps=setting.steps,
        elapsed_seconds=run.elapsed_seconds,
        wait_seconds=run.wait_seconds,
        wait_for_hosts_seconds=run.wait_for_hosts_seconds,
        first_seconds=run.first_seconds,
        steps_per_second=run.per_second,
        wait_share=run.steady_wait_share,
        busy_share=run.busy_share,
        records=round(elements * costs.source_records),
        bytes=round(elements * costs.source_bytes),
        requests=round(elements * _requests_each(costs, run)),
        memory_bytes=round(memory),
        unsure=costs.unsure,
        least_per_second=min(slow, run.per_second),
        most_per_second=max(fast, run.per_second),
        notes=tuple(_notes(costs, run)),
    )


def _requests_each(costs: Costs, run: Simulated) -> float:
    """Requests for an element: threads ask for smaller blocks than one reader does."""
    tried = [one.requests for one in costs.trials if not one.workers and one.requests]
    return tried[0] if run.threads and tried else costs.requests


def _bytes_of_workers(costs: Costs, workers: int) -> float:
    """What worker processes have for themselves: on a line through what was seen of some."""
    if not workers:
        return 0.0
    seen = sorted((run.workers, run.worker_bytes) for run in costs.trials if run.worker_bytes)
    if not seen:
        return _NURSERY_BYTES + workers * _WORKER_BYTES
    (few, least), (many, most) = seen[0], seen[-1]
    each = (most - least) / (many - few) if many > few else _WORKER_BYTES
    return max(0.0, most + (workers - many) * max(0.0, each))


def _notes(costs: Costs, run: Simulated) -> Iterator[str]:
    yield "no other program uses the cores"
    if costs.requests:
        yield (
            "requests and their bytes are as in the sample: at the start, and of workers, blocks "
            "are smaller, so that fewer neighbours are one request; what a cache has is not asked "
            "for"
        )
    makers = run.workers or run.threads
    tried = any(bool(one.workers) == bool(run.workers) for one in costs.trials)
    if tried:
        return
    if makers:
        who = "workers" if run.workers else "threads"
        yield (
            f"cores are as fast together as each alone: no {who} were tried, or only while "
            "other programs used the cores"
        )
    use_again = run.threads or (run.workers and not costs.placed_seconds)
    if use_again and costs.bytes > _LARGE_BYTES:
        yield (
            f"each element of {size(round(costs.bytes))} is made in new memory, as in the sample; "
            "threads and workers use theirs again, and were up to twice as fast in trials"
        )
    if run.workers and run.side_by_side > 1:
        yield (
            f"{run.side_by_side} threads in each worker pay, as they seem to; a worker tries, and "
            "may find that they do not"
        )
    if run.threads > 1 and costs.on_threads.cpu_share > _WAITS:
        yield (
            f"{run.threads} threads pay, as they seem to; the engine tries, and may find that they "
            "do not: then it is as in one thread"
        )
    if run.threads and costs.on_threads.lock_seconds > _MUCH_LOCK * costs.on_threads.seconds:
        yield (
            "threads take turns with the interpreter's lock as simulated; where the training wants "
            "it as well, part of the wait is seen in its own time instead"
        )
