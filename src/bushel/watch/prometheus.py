"""Figures as metrics of Prometheus: their names, their labels, and the text format.

Labels are numbers and names, never paths. A counter never decreases: estimated times of steps may
be corrected downwards, and a step that has ended may no longer be counted. So values told earlier
are the minimum.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bushel.watch.live_processes import LiveIterator, LiveProcess

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


class _MetricSeries(NamedTuple):
    metric: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class Family:
    """The values of iterators under one name."""

    name: str
    # "counter" or "gauge".
    kind: str
    help: str


METRICS = (
    Family("bushel_steps_total", "counter", "Elements handed to the loop."),
    Family("bushel_elapsed_seconds_total", "counter", "Time since the first was asked for."),
    Family("bushel_wait_seconds_total", "counter", "Time that the loop waited for elements."),
    Family("bushel_ready_share", "gauge", "Share of the waits that took under a millisecond."),
    Family("bushel_figures_age_seconds", "gauge", "Time since the iterator published figures."),
    Family("bushel_node_seconds_total", "counter", "Own time of a step, over all threads."),
    Family("bushel_node_records_total", "counter", "Records that a step had to do with."),
    Family("bushel_ready_blocks", "gauge", "Blocks that were made ahead and wait to be taken."),
    Family("bushel_bad_records_total", "counter", "Records that were passed over."),
    Family("bushel_workers", "gauge", "Worker processes."),
    Family("bushel_worker_restarts_total", "counter", "Workers that ended and were replaced."),
    Family("bushel_worker_tasks_total", "counter", "Tasks whose outcome was taken."),
    Family("bushel_worker_busy_seconds_total", "counter", "Time that workers worked."),
    Family("bushel_worker_idle_seconds_total", "counter", "Time that workers had no task."),
    Family("bushel_worker_bytes_total", "counter", "Bytes that came from workers."),
)
_MAY_BE_PRIVATE, _WORD = re.compile(r"[/\\'\"@]"), re.compile(r"\w+(?=[(]|$)")
_COUNTERS = frozenset(metric.name for metric in METRICS if metric.kind == "counter")


class Exposition:
    """Exports figures as metrics, again and again."""

    def __init__(self) -> None:
        self._told: dict[_MetricSeries, float] = {}

    def families(self, iterators: Iterable[tuple[Labels, LiveIterator]]) -> "Families":
        """The current metrics of some iterators, each with its own labels."""
        found: dict[_MetricSeries, float] = {}
        for own, iterator in iterators:
            for name, labels, value in _values(iterator):
                series = _MetricSeries(name, (*own, *labels))
                # Steps whose labels become equal when secrets are removed are summed.
                found[series] = found.get(series, 0.0) + value
        for series, value in found.items():
            if series.metric in _COUNTERS:
                found[series] = max(value, self._told.get(series, value))
        # Values of iterators that are gone are dropped.
        self._told = found
        return [
            (metric, [(one.labels, found[one]) for one in found if one.metric == metric.name])
            for metric in METRICS
        ]

    def text(self, processes: Sequence[LiveProcess]) -> str:
        """The text for the current figures of some processes."""
        iterators = (
            ((("pid", str(process.pid)), *own_label(iterator)), iterator)
            for process in processes
            for iterator in process.iterators
        )
        lines = []
        for metric, values in self.families(iterators):
            if values:
                lines.append(f"# HELP {metric.name} {metric.help}")
                lines.append(f"# TYPE {metric.name} {metric.kind}")
                lines += [_line(metric.name, labels, value) for labels, value in values]
        return "".join(f"{line}\n" for line in lines)


Families = list[tuple[Family, list[tuple[Labels, float]]]]


def own_label(iterator: LiveIterator) -> Labels:
    """The label of an iterator within its process."""
    return (("iterator", str(iterator.published.iterator)),)


_Value = tuple[str, Labels, float]


def _values(iterator: LiveIterator) -> Iterable[_Value]:
    stats = iterator.published.stats
    yield "bushel_steps_total", (), stats.elements
    yield "bushel_elapsed_seconds_total", (), stats.elapsed_seconds
    yield "bushel_wait_seconds_total", (), stats.wait_seconds
    yield "bushel_ready_share", (), stats.ready_share
    yield "bushel_figures_age_seconds", (), iterator.age_seconds
    yield "bushel_ready_blocks", (), stats.ready_blocks
    yield "bushel_bad_records_total", (), stats.bad_records
    for step in stats.steps or ():
        labels = (("node", str(step.number)), ("name", label(step.name)), ("place", step.place))
        yield "bushel_node_seconds_total", labels, step.seconds
        yield "bushel_node_records_total", labels, step.records
    for number, workers in enumerate(stats.workers):
        pool = (("pool", str(number)),)
        yield "bushel_workers", pool, workers.workers
        yield "bushel_worker_restarts_total", pool, workers.deaths
        yield "bushel_worker_tasks_total", pool, workers.tasks
        yield "bushel_worker_busy_seconds_total", pool, workers.busy_seconds
        yield "bushel_worker_idle_seconds_total", pool, workers.idle_seconds
        yield "bushel_worker_bytes_total", pool, workers.bytes


def label(name: str) -> str:
    """The name of a step without possible paths or secrets: without quoted text and slashes.

    >>> label("map(tokenize)"), label("source('/data/x.parquet')"), label("cache(/tmp/x)")
    ('map(tokenize)', 'source', 'cache')
    """
    if _MAY_BE_PRIVATE.search(name) is None:
        return name
    beginning = _WORD.match(name)
    return beginning[0] if beginning is not None else "step"


def _line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{inner}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
