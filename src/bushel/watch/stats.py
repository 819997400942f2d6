"""`iterator.stats()`: the loop's wait and each step's work, as values, a table, a page."""

import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from bushel.core.node import Node, walk
from bushel.core.places import NOWHERE
from bushel.deliver.figures import Figures
from bushel.lanes.deal import DealNode
from bushel.run.step_total import StepTotal
from bushel.run.worker_figures import WorkerChange, WorkerFigures
from bushel.watch.costs import StepCost
from bushel.watch.durations import duration, percent
from bushel.watch.html import bars, heading, piece
from bushel.watch.html import table as html_table
from bushel.watch.plain_text import number, plural, printable, size
from bushel.watch.plain_text import table as text_table
from bushel.watch.why_slow import why_slow

# With more steps than that, those of the same name are one line.
_MOST_LINES = 40
# The name of a step that has none, as nobody wrote it.
UNWRITTEN = "(in between)"
_NUMBER = re.compile(r"\d+(\.\d+)?")
_HEAD = ("step", "runs", "records", "time/record", "share", "bytes/record", "longest call")
_NOT_COUNTED = (
    "Steps were not counted: iterate with `bushel.iterate(dataset, stats=True)` to see what each "
    "of them takes."
)
_WHOSE_TIME = "time is summed over threads and workers; a step's own, without the others"


@dataclass(frozen=True, slots=True)
class StepStats:
    """What one step has done."""

    name: str
    # "here" (also on threads of this process), "workers", or "waiting": for whom, its name says.
    place: str
    # How many steps this stands for: the same one in so many parts of a mixture.
    parts: int
    records: int
    # Whether that is an estimate: of the parts of a mixture, nobody counts.
    records_are_estimated: bool
    # Its own time, summed over threads and workers; and its share of that of all steps.
    seconds: float
    share: float
    longest_call_seconds: float
    # The first position of that call; -1 where nobody knows.
    longest_call_at: int
    # Its number in the pipeline, from 0 for the first on; -1 where it is no step of that.
    number: int = -1
    # Of what it makes of a record, as far as some of them were measured; -1 where none was yet.
    bytes_per_record: float = -1.0

    @property
    def seconds_per_record(self) -> float:
        """Own time for each record."""
        return self.seconds / self.records if self.records else 0.0


def first_cells(step: StepStats | StepCost) -> list[str]:
    """The first cells of a step's row: its name, where it runs, its records and its time."""
    time = step.seconds_per_record if step.records else step.seconds
    return [
        f"{step.name} x {step.parts}" if step.parts > 1 else step.name,
        step.place,
        f"{'~' * step.records_are_estimated}{number(step.records)}" if step.records else "",
        duration(time),
    ]


@dataclass(frozen=True, slots=True)
class Stats:
    """What an iterator has done so far. `print` shows it; `to_dict()` has it as plain values.

    Times in seconds. `wait_seconds` is the time that the loop spent in `next` while elements were
    made or waited for: what training would gain if data came at once.
    """

    # Elements that were handed out, of whatever the last step makes: mostly batches.
    elements: int
    # Since the first one was asked for.
    elapsed_seconds: float
    wait_seconds: float
    # The share of the times that something was made or waited for in which it was there within a
    # millisecond.
    ready_share: float
    longest_wait_seconds: float
    longest_wait_at: int
    # None where the steps were not counted.
    steps: tuple[StepStats, ...] | None
    # What was chosen about threads.
    threads: tuple[str, ...]
    workers: tuple[WorkerFigures, ...]
    # Blocks that threads or workers have made, and that wait to be taken.
    ready_blocks: int = 0
    # Records that `on_error` passed over.
    bad_records: int = 0
    # Parts of mixtures that are evaluated together: their steps are counted with the mixture.
    parts_together: int = 0
    # Of the wait, that for the first element, in which everything starts.
    first_wait_seconds: float = 0.0

    @property
    def wait_share(self) -> float:
        """The share of its time that the loop waited for data."""
        return self.wait_seconds / self.elapsed_seconds if self.elapsed_seconds else 0.0

    def why_slow(self) -> tuple[str, ...]:
        """Sentences, each with a number and one change to make."""
        return why_slow(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON takes."""
        return {
            "elements": self.elements,
            "elapsed_seconds": self.elapsed_seconds,
            "wait_seconds": self.wait_seconds,
            "wait_share": self.wait_share,
            "ready_share": self.ready_share,
            "longest_wait_seconds": self.longest_wait_seconds,
            "longest_wait_at": self.longest_wait_at,
            "steps": None
            if self.steps is None
            else [
                {**_values_of(step), "seconds_per_record": step.seconds_per_record}
                for step in self.steps
            ],
            "threads": list(self.threads),
            "workers": [
                {**asdict(figures), "changes": [asdict(change) for change in figures.changes]}
                for figures in self.workers
            ],
            "ready_blocks": self.ready_blocks,
            "bad_records": self.bad_records,
            "parts_together": self.parts_together,
            "first_wait_seconds": self.first_wait_seconds,
            "why_slow": list(self.why_slow()),
        }

    def __str__(self) -> str:
        lines = self._summary()
        if self.steps:
            lines.append(text_table(_HEAD, self._rows(), right=(2, 3, 4, 5)))
            lines += [_WHOSE_TIME, *self._together()]
        lines += [f"{who}  {text}" for who, text in self._processes()]
        if self.steps is None:
            lines.append(_NOT_COUNTED)
        lines += [f"why slow: {sentence}" for sentence in self.why_slow()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        remarks = [("why slow", sentence) for sentence in self.why_slow()]
        remarks += [("parts", sentence) for sentence in self._together()]
        remarks += self._processes()
        if self.steps is None:
            remarks.append(("steps", _NOT_COUNTED))
        return piece([("so far", " ".join(self._summary()))], self._html_of_steps(), remarks)

    def _html_of_steps(self) -> str:
        if not self.steps:
            return ""
        shares = [(step.name, step.place, step.share) for step in self.steps if step.share]
        return bars(shares) + html_table(_HEAD, self._rows(), right=(2, 3, 4, 5))

    def to_html(self, waits: str, course: str) -> str:
        """The same for a page of its own, with pictures of the waits and the course of the run."""
        return piece(
            heading("Why"),
            [("", f"{one[0].upper()}{one[1:]}") for one in (*self.why_slow(), *self._summary())],
            heading("Steps"),
            self._html_of_steps(),
            [
                ("", text)
                for text in (_WHOSE_TIME if self.steps else _NOT_COUNTED, *self._together())
            ],
            heading("Waits"),
            waits,
            heading("Threads and workers in the course of the run") if course else "",
            course,
            heading("Threads and workers") if self.threads or self.workers else "",
            self._processes(),
        )

    def _together(self) -> list[str]:
        if not self.parts_together:
            return []
        return [
            f"{plural(self.parts_together, 'part')} of mixtures are evaluated together: what their "
            "steps take is counted with the step that joins them"
        ]

    def _processes(self) -> list[tuple[str, str]]:
        """What threads and worker processes there are, and what those did."""
        told = [
            ("threads", f"{text} x {times}" if times > 1 else text)
            for text, times in Counter(self.threads).items()
        ]
        for one in self.workers:
            told.append(("workers", _told(one, self.elapsed_seconds)))
            told += [("changed", _change(change)) for change in one.changes]
        return told

    def _summary(self) -> list[str]:
        if not self.elements and not self.elapsed_seconds:
            return ["Nothing was asked for yet."]
        told = [
            f"{plural(self.elements, 'element')} in {duration(self.elapsed_seconds)}. Your loop "
            f"waited {percent(self.wait_share)} of its time ({duration(self.wait_seconds)}); data "
            f"was ready at once in {percent(self.ready_share)} of the times."
        ]
        if self.longest_wait_at >= 0:
            told.append(
                f"The longest wait after the first: {duration(self.longest_wait_seconds)} for "
                f"element {number(self.longest_wait_at)}."
            )
        if self.bad_records:
            told.append(f"{plural(self.bad_records, 'bad record')} passed over.")
        return told

    def _rows(self) -> list[list[str]]:
        return [
            [
                *first_cells(step),
                percent(step.share) if step.place != "waiting" else "",
                size(round(step.bytes_per_record)) if step.bytes_per_record >= 0 else "",
                _longest(step),
            ]
            for step in self.steps or ()
        ]


def _values_of(step: StepStats) -> dict[str, Any]:
    # (`asdict` copies values deeply, which takes most of the time that figures take.)
    return dict(zip(_STEP_FIELDS, _step_values(step), strict=True))


_STEP_FIELDS = tuple(one.name for one in fields(StepStats))
_step_values = operator.attrgetter(*_STEP_FIELDS)


def stats_of(figures: Figures, node: Node | None = None) -> Stats:
    """Makes the statistics of an iterator; steps stand in the order of the pipeline of `node`."""
    steps = None
    if figures.steps is not None:
        numbers = numbers_in(node, figures.steps) if figures.steps else {}
        # The last step first, as `explain` has them. (Each was opened after its inputs.)
        opened = figures.steps[::-1]
        totals = sorted(opened, key=lambda total: -numbers.get(id(total.node), -1))
        steps = _steps(totals, numbers)
    return Stats(
        elements=figures.elements,
        elapsed_seconds=figures.elapsed_seconds,
        wait_seconds=figures.wait_seconds,
        ready_share=figures.ready_refills / figures.refills if figures.refills else 0.0,
        longest_wait_seconds=figures.longest_wait_seconds,
        longest_wait_at=figures.longest_wait_at,
        steps=steps,
        threads=figures.threads,
        workers=figures.workers,
        ready_blocks=figures.ready_blocks,
        bad_records=figures.bad_records,
        parts_together=figures.parts_together,
        first_wait_seconds=figures.first_wait_seconds,
    )


def numbers_in(node: Node | None, totals: Sequence[StepTotal]) -> dict[int, int]:
    """The numbers of the steps of a pipeline, by their `id`; also of their copies in lanes."""
    steps = [] if node is None else list(walk(node))
    numbers = {id(step): len(steps) - 1 - place for place, step in enumerate(steps)}
    if any(isinstance(step, DealNode) for step in steps):
        _number_copies(numbers, steps, [total.node for total in totals])
    return numbers


def _number_copies(numbers: dict[int, int], steps: Sequence[Node], done: Sequence[Node]) -> None:
    """Gives steps that were copied for each lane the number of the original, by its name.

    What deals and gathers has no original, and the number of the step before it.
    """
    named: dict[str, list[int]] = {}
    for step in reversed(steps):
        named.setdefault(step.label, []).append(numbers[id(step)])
    copies: Counter[str] = Counter()
    others: list[Node] = []
    for step in done:
        if id(step) in numbers or step is NOWHERE:
            continue
        originals = named.get(step.label)
        if originals:
            numbers[id(step)] = originals[copies[step.label] % len(originals)]
            copies[step.label] += 1
        else:
            others.append(step)
    for step in (*others, *others):  # Some are noted before what they read.
        known = [numbers[id(part)] for part in step.inputs if id(part) in numbers]
        numbers[id(step)] = max(known, default=-1)


def _steps(totals: Sequence[StepTotal], numbers: Mapping[int, int]) -> tuple[StepStats, ...]:
    whole = sum(total.nanoseconds for total in totals if not total.waits_for) or 1
    lines: dict[tuple[str, str, int], list[StepTotal]] = {}
    alone = -1
    for name, where, group in grouped(totals):
        number = numbers.get(id(group[-1].node), -1)
        if number < 0:
            number = alone = alone - 1  # A step that has no number has a line of its own.
        # Of the lanes, the copies of a step are one line.
        lines.setdefault((name, where, number), []).extend(group)
    return tuple(
        _joined(name, where, group, whole, max(-1, number))
        for (name, where, number), group in lines.items()
    )


def grouped(
    totals: Sequence[StepTotal], most: int = _MOST_LINES
) -> list[tuple[str, str, list[StepTotal]]]:
    """Steps as they are told, in lines: name, place, and the steps that a line stands for.

    With more lines than `most`, those of one name are one, and then those that differ in their
    numbers only.
    """
    told: list[tuple[str, str, StepTotal]] = []
    for total in totals:
        if not total.records and not total.nanoseconds:
            continue  # Read together with the next one, or not needed yet.
        if total.waits_for:
            told.append((f"(waiting for {total.waits_for})", "waiting", total))
        else:
            told.append((printable(total.node.label) or UNWRITTEN, total.where, total))
    if len(told) <= most:
        return [(name, where, [total]) for name, where, total in told]
    groups = _by_name(told)
    if len(groups) > most:
        groups = _by_name([(_NUMBER.sub("…", name), place, total) for name, place, total in told])
    return [(name, where, group) for (name, where), group in groups.items()]


def _by_name(
    told: Sequence[tuple[str, str, StepTotal]],
) -> dict[tuple[str, str], list[StepTotal]]:
    groups: dict[tuple[str, str], list[StepTotal]] = {}
    for name, where, total in told:
        groups.setdefault((name, where), []).append(total)
    return groups


def _joined(
    name: str, where: str, group: Sequence[StepTotal], whole: int, number: int
) -> StepStats:
    nanoseconds = sum(total.nanoseconds for total in group)
    slowest = max(group, key=lambda total: total.longest_nanoseconds)
    sized = sum(total.sized for total in group)
    return StepStats(
        name=name,
        place=where,
        parts=len(group),
        records=sum(total.records for total in group),
        records_are_estimated=any(total.is_estimate for total in group),
        seconds=nanoseconds / 1e9,
        share=0.0 if where == "waiting" else nanoseconds / whole,
        longest_call_seconds=slowest.longest_nanoseconds / 1e9,
        longest_call_at=slowest.longest_at,
        number=number,
        bytes_per_record=sum(total.sized_bytes for total in group) / sized if sized else -1.0,
    )


def _longest(step: StepStats) -> str:
    if not step.longest_call_seconds:
        return ""
    at = f" at {number(step.longest_call_at)}" if step.longest_call_at >= 0 else ""
    return f"{duration(step.longest_call_seconds)}{at}"


def _change(change: WorkerChange) -> str:
    return (
        f"{change.what} {change.was} -> {change.now} after {duration(change.seconds)}: "
        f"{printable(change.why)}"
    )


def _told(figures: WorkerFigures, elapsed_seconds: float) -> str:
    parts = [
        plural(figures.workers, "worker"),
        f"busy {percent(figures.busy_share)}",
        f"{plural(figures.tasks, 'task')} ({number(figures.ready_tasks)} more ready)",
        f"{size(figures.bytes)} sent",
    ]
    if elapsed_seconds:
        parts[-1] += f" ({size(int(figures.bytes / elapsed_seconds))}/s)"
    if figures.deaths:
        again = plural(figures.repeated_tasks, "task")
        parts.append(f"{plural(figures.deaths, 'death')}, {again} done again")
    if figures.cancelled_tasks:
        parts.append(f"{plural(figures.cancelled_tasks, 'task')} no longer wanted")
    return ", ".join(parts)
