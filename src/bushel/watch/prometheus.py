"""Figures in the text format of Prometheus.

Labels are numbers and names, and never a path. A counter never falls: the times of steps, which
are estimated from some of their calls, may be found to be a little less than it seemed, and a
step that has ended may no longer be counted. So what was told once is the least.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bushel.watch.processes import LiveIterator, LiveProcess

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# (metric, labels)
_Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    kind: str
    help: str


_METRICS = (
    _Metric("bushel_steps_total", "counter", "Elements handed to the loop."),
    _Metric("bushel_elapsed_seconds_total", "counter", "Time since the first was asked for."),
    _Metric("bushel_wait_seconds_total", "counter", "Time that the loop waited for elements."),
    _Metric("bushel_ready_share", "gauge", "Share of the waits that took under a millisecond."),
    _Metric("bushel_figures_age_seconds", "gauge", "Time since the iterator published figures."),
    _Metric("bushel_node_seconds_total", "counter", "Own time of a step, over all threads."),
    _Metric("bushel_node_records_total", "counter", "Records that a step had to do with."),
    _Metric("bushel_workers", "gauge", "Worker processes."),
    _Metric("bushel_worker_restarts_total", "counter", "Workers that ended and were replaced."),
    _Metric("bushel_worker_tasks_total", "counter", "Tasks whose outcome was taken."),
    _Metric("bushel_worker_busy_seconds_total", "counter", "Time that workers worked."),
    _Metric("bushel_worker_idle_seconds_total", "counter", "Time that workers had no task."),
    _Metric("bushel_worker_bytes_total", "counter", "Bytes that came from workers."),
)
_MAY_BE_PRIVATE, _WORD = re.compile(r"[/\\'\"@]"), re.compile(r"\w+(?=[(]|$)")
_COUNTERS = frozenset(metric.name for metric in _METRICS if metric.kind == "counter")


class Exposition:
    """Writes figures, time after time."""

    def __init__(self) -> None:
        self._told: dict[_Series, float] = {}

    def text(self, processes: Sequence[LiveProcess]) -> str:
        """The figures of some processes now."""
        found: dict[_Series, float] = {}
        for process in processes:
            for iterator in process.iterators:
                own = (("pid", str(process.pid)), ("iterator", str(iterator.published.iterator)))
                for name, labels, value in _values(iterator):
                    series = name, (*own, *labels)
                    # Steps whose names differ in what may not be told are added up.
                    found[series] = found.get(series, 0.0) + value
        for series, value in found.items():
            if series[0] in _COUNTERS:
                found[series] = max(value, self._told.get(series, value))
        # Those of iterators that are gone are forgotten.
        self._told = found
        lines = []
        for metric in _METRICS:
            own_lines = [_line(*one) for one in found.items() if one[0][0] == metric.name]
            if own_lines:
                lines.append(f"# HELP {metric.name} {metric.help}")
                lines.append(f"# TYPE {metric.name} {metric.kind}")
                lines += own_lines
        return "".join(f"{line}\n" for line in lines)


_Value = tuple[str, tuple[tuple[str, str], ...], float]


def _values(iterator: LiveIterator) -> Iterable[_Value]:
    stats = iterator.published.stats
    yield "bushel_steps_total", (), stats.elements
    yield "bushel_elapsed_seconds_total", (), stats.elapsed_seconds
    yield "bushel_wait_seconds_total", (), stats.wait_seconds
    yield "bushel_ready_share", (), stats.ready_share
    yield "bushel_figures_age_seconds", (), iterator.age_seconds
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
    """The name of a step without what may be a path or a secret: any text in quotes, and slashes.

    >>> label("map(tokenize)"), label("source('/data/x.parquet')"), label("cache(/tmp/x)")
    ('map(tokenize)', 'source', 'cache')
    """
    if _MAY_BE_PRIVATE.search(name) is None:
        return name
    beginning = _WORD.match(name)
    return beginning[0] if beginning is not None else "step"


def _line(series: _Series, value: float) -> str:
    name, labels = series
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{inner}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
