"""The result of `profile`: values, a text, a page, and JSON that is saved and loaded again."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from bushel.run.worker_figures import WorkerFigures
from bushel.watch.costs import WAITS, Costs, StepCost
from bushel.watch.durations import duration, percent
from bushel.watch.html import bars, piece
from bushel.watch.html import table as html_table
from bushel.watch.plain_text import clipped, paragraph, plural, size
from bushel.watch.plain_text import table as text_table
from bushel.watch.simulated_makers import Setting
from bushel.watch.simulated_run import Simulated, simulated
from bushel.watch.stats import Stats, StepStats, first_cells

_HEAD = ("step", "runs", "records", "own time/record", "share", "on a core", "GIL", "bytes", "")
_SPEED_HEAD = ("with", "predicted", "verified", "of prediction")
# A training that waits for a smaller share of its time than that is fed.
_FED = 0.01
# And one in which this process does more than that beside it is not.
_MOST_HERE = 0.1
# Numbers of workers that are thought through; more are no advice.
_POWERS = (1, 2, 4, 8, 16, 32, 64)
# Steps of a training that is thought through.
_STEPS = 100
# Seconds of one that rules are asked about.
_A_WHILE = 10.0
# More time than that in the queue for a core is told.
_CROWD = 0.05


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast elements come with some workers, or up to so many threads."""

    name: str
    workers: int
    threads: int
    predicted_per_second: float = 0.0
    # None where it was not tried.
    verified_per_second: float | None = None
    # Until the first element came, where it was tried.
    first_seconds: float | None = None
    # Times that the end of the data was reached while it was tried.
    passes: int = 0

    @property
    def error(self) -> float | None:
        """How far the prediction was off: 0.1 where elements came 10 % faster than predicted."""
        if self.verified_per_second is None or not self.predicted_per_second:
            return None
        return self.verified_per_second / self.predicted_per_second - 1


@dataclass(frozen=True, slots=True)
class Profile:
    """What a pipeline costs. `print` shows it; `to_dict()` has it as plain values.

    `Profile.from_dict` takes those again, and `bushel.simulate` takes a profile.
    """

    # The class of what was measured.
    what: str
    # Elements of the sample, and how often the end of the data was reached for it.
    elements: int
    passes: int
    first_seconds: float
    # The share of the time that this process stood in the queue for a core.
    queued_share: float
    cores: float
    # Workers that the pipeline has as it is written, and tasks that wait for each.
    workers: int
    buffer: int
    # The last step first, as `explain` has them.
    steps: tuple[StepCost, ...]
    costs: Costs
    speeds: tuple[Speed, ...]
    step_seconds: float | None = None

    def simulated(self, setting: Setting) -> Simulated:
        """What would become of a training with these costs."""
        return simulated(self.costs, setting)

    def setting(self, workers: int, threads: int, step_seconds: float = 0.0) -> Setting:
        """A training on this machine."""
        return Setting(
            workers=workers,
            threads=threads,
            buffer=self.buffer,
            cores=self.cores,
            step_seconds=step_seconds,
            steps=_STEPS,
        )

    def needs(self, step_seconds: float) -> str:
        """What it takes so that a training with steps of so many seconds does not wait."""
        wanted = f"to feed a step of {duration(step_seconds)} ({rate_text(1 / step_seconds)})"
        setting = self.setting(0, self.costs.most_threads, step_seconds)
        if self._is_fed(setting):
            threads = self.simulated(setting).threads
            will_do = f"; {plural(threads, 'thread')} of this process will do" if threads else ""
            return f"{wanted}: no workers{will_do}."
        workers = self._fewest(step_seconds, self.cores)
        if workers is not None:
            return f"{wanted}: num_workers={workers}."
        speeds = [
            (self.simulated(self.setting(workers, self.costs.most_threads)).per_second, workers)
            for workers in (0, *_POWERS)
        ]
        most = max(speeds)[0]
        fewest = next(workers for speed, workers in speeds if speed > 0.95 * most)
        told = f"{wanted}, {self.cores:g} cores are too few: {rate_text(most)} is the most, with "
        told += f"num_workers={fewest}." if fewest else "no workers."
        workers = self._fewest(step_seconds, None)
        if workers is not None:
            return f"{told} With {workers + 1} cores, num_workers={workers} would be enough."
        heaviest = max(self.steps, key=lambda step: step.seconds)
        stays = duration(self.costs.beside_workers.seconds + self.costs.taking_seconds)
        return (
            f"{told} More cores would not be enough: {stays} of each step stay in this process; "
            f"`{heaviest.name}` is {percent(heaviest.share)} of the work."
        )

    def _fewest(self, step_seconds: float, cores: float | None) -> int | None:
        """The fewest workers that feed such a training; with a core for each if `cores` is None."""

        def feed(workers: int) -> bool:
            setting = self.setting(workers, self.costs.most_threads, step_seconds)
            return self._is_fed(
                replace(setting, cores=float(workers + 1) if cores is None else cores)
            )

        enough = next(filter(feed, _POWERS), None)
        if enough is None:
            return None
        return next(filter(feed, range(enough // 2 + 1, enough)), enough)

    def _is_fed(self, setting: Setting) -> bool:
        run = self.simulated(setting)
        # What is left for this process to do is waited for in any case.
        wait = run.steady_wait_seconds - run.here_seconds
        little = run.here_seconds <= _MOST_HERE * setting.step_seconds
        return little and wait <= _FED * setting.step_seconds

    def stats(self, step_seconds: float) -> Stats:
        """What statistics of the pipeline as it is written would tell of such a training."""
        run = self.simulated(self.setting(self.workers, self.costs.most_threads, step_seconds))
        steps = max(_STEPS, math.ceil(_A_WHILE / max(run.steady_seconds, 1e-9)))
        elapsed, wait = steps * run.steady_seconds, steps * run.steady_wait_seconds
        workers: tuple[WorkerFigures, ...] = ()
        if run.workers:
            busy = run.busy_share * run.workers * elapsed
            idle = run.workers * elapsed - busy
            sent = round(self.costs.bytes * steps)
            workers = (WorkerFigures(run.workers, steps, busy, idle, sent, 0, 0, 0),)
        none = "they do not pay" if self.costs.most_threads else "none, with `num_threads=0`"
        threads = (f"{run.threads} threads" if run.threads else none,)
        return Stats(
            elements=steps,
            elapsed_seconds=elapsed,
            wait_seconds=wait,
            ready_share=0.0,
            longest_wait_seconds=0.0,
            longest_wait_at=-1,
            steps=tuple(map(_as_stats, self.steps)),
            threads=threads,
            workers=workers,
        )

    def why_slow(self, step_seconds: float | None = None) -> tuple[str, ...]:
        """The rules of `iterator.stats().why_slow()` on a training with steps so long."""
        step = self.step_seconds if step_seconds is None else step_seconds
        told = self.stats(step or 0.0).why_slow()
        waiting = self._waiting_alone()
        return told if waiting is None or self.workers else (waiting,)

    def _waiting_alone(self) -> str | None:
        """What to say where a step waits, and no other thread may wait beside it."""
        heaviest = max(self.steps, key=lambda step: step.seconds)
        could = self.costs.on_threads.seconds > self.costs.beside_threads.seconds
        if self.costs.most_threads or not could or heaviest.cpu_share >= WAITS:
            return None
        return (
            f"`{heaviest.name}` is {percent(heaviest.share)} of the work, and waits "
            f"{percent(1 - heaviest.cpu_share)} of its time, with `num_threads=0`: without that, "
            "or with `ReadOptions(num_threads=16)`, threads wait for many at the same time."
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON takes."""
        values = asdict(self)
        for step, value in zip(self.steps, values["steps"], strict=True):
            value["seconds_per_record"], value["remark"] = step.seconds_per_record, step.remark
        for speed, value in zip(self.speeds, values["speeds"], strict=True):
            value["error"] = speed.error
        if self.step_seconds is not None:
            values["needs"] = self.needs(self.step_seconds)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Profile":
        """Makes it of what `to_dict` gave."""
        derived = ("seconds_per_record", "remark", "error")

        def plain(value: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value[name] for name in value if name not in derived}

        made = {name: values[name] for name in values if name != "needs"}
        made["steps"] = tuple(StepCost(**plain(step)) for step in values["steps"])
        made["speeds"] = tuple(Speed(**plain(speed)) for speed in values["speeds"])
        made["costs"] = Costs.from_dict(values["costs"])
        return cls(**made)

    def __str__(self) -> str:
        lines = [
            text_table(_HEAD, self._rows(), right=(2, 3, 4, 5, 6, 7)),
            text_table(_SPEED_HEAD, self._speed_rows(), right=(1, 2, 3)),
        ]
        lines += [paragraph(*remark) for remark in self._remarks()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        shares = [(step.name, step.place, step.share) for step in self.steps if step.share]
        return piece(
            bars(shares),
            html_table(_HEAD, self._rows(), right=(2, 3, 4, 5, 6, 7)),
            html_table(_SPEED_HEAD, self._speed_rows(), right=(1, 2, 3)),
            self._remarks(),
        )

    def _rows(self) -> list[list[str]]:
        return [
            [
                *first_cells(step),
                percent(step.share),
                percent(step.cpu_share) if step.share > _FED else "",
                percent(step.lock_share) if step.lock_share is not None else "",
                size(round(step.bytes_each)) if step.bytes_each is not None else "",
                step.remark if step.share > _FED else "",
            ]
            for step in self.steps
        ]

    def _speed_rows(self) -> list[list[str]]:
        return [
            [
                speed.name,
                rate_text(speed.predicted_per_second),
                "" if speed.verified_per_second is None else rate_text(speed.verified_per_second),
                "" if speed.error is None else f"{1 + speed.error:.2f}",
            ]
            for speed in self.speeds
        ]

    def _remarks(self) -> list[tuple[str, str]]:
        ended = f", the data ended {plural(self.passes, 'time')}" if self.passes else ""
        remarks = [
            (
                "sample",
                f"{plural(self.elements, 'element')} of {size(round(self.costs.bytes))}{ended}; "
                f"the first after {duration(self.first_seconds)}; {self.cores:g} cores.",
            )
        ]
        if self.queued_share > _CROWD:
            remarks.append(
                (
                    "others",
                    f"this process stood in the queue for a core for {percent(self.queued_share)} "
                    "of the time: predictions are for cores that are free.",
                )
            )
        passes = max(speed.passes for speed in self.speeds)
        if passes:
            remarks.append(
                (
                    "short",
                    f"the data ended {plural(passes, 'time')} while it was tried: what it takes to "
                    "begin again is in the figures.",
                )
            )
        if self.step_seconds is not None:
            remarks.append(("needed", self.needs(self.step_seconds)))
            remarks += [("why slow", sentence) for sentence in self.why_slow()]
        return remarks


def _as_stats(step: StepCost) -> StepStats:
    return StepStats(
        name=clipped(step.name),
        place="workers" if step.place == "workers" else "here",
        parts=step.parts,
        records=step.records,
        records_are_estimated=step.records_are_estimated,
        seconds=step.seconds,
        share=step.share,
        longest_call_seconds=step.longest_call_seconds,
        longest_call_at=step.longest_call_at,
        number=step.number,
        bytes_per_record=-1.0 if step.bytes_each is None else step.bytes_each,
    )


def rate_text(per_second: float) -> str:
    """Elements a second as people write it.

    >>> rate_text(12_900), rate_text(8.4), rate_text(2_100_000)
    ('12.9k/s', '8.4/s', '2.1M/s')
    """
    for unit, least in (("M", 1e6), ("k", 1e3)):
        if per_second >= least:
            return f"{per_second / least:.3g}{unit}/s"
    return f"{per_second:.3g}/s"
