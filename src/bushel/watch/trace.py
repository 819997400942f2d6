"""`iterator.trace`: traces for Perfetto and Chrome.

A file of JSON in the format of Chrome's trace events, which `ui.perfetto.dev` and
`chrome://tracing` open. It is written at the first `next` after its time is over, and at the latest
when the iterator is closed, ends or is freed.
"""

import json
import logging
import os
import threading
import weakref
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

from bushel.core.derived_class import become, become_again
from bushel.deliver.ready_elements import Ready
from bushel.deliver.timed import TimedIterator
from bushel.errors import PlanError
from bushel.files.whole import written_whole
from bushel.run.spans import MOST_SPANS, Spans, WorkSpan
from bushel.run.step_times import StepTimes
from bushel.watch.plain_text import clipped, printable
from bushel.watch.report import check_file
from bushel.watch.stats import UNWRITTEN

_log = logging.getLogger("bushel")
WAIT, LOOP = "wait for data", "your loop"
_MOST_NAME = 100


class Trace:
    """A running trace: its spans, its end, and its file."""

    def __init__(self, times: StepTimes, seconds: float, path: str) -> None:
        self.spans = Spans()
        self._times, self._path = times, path
        self.ends = perf_counter_ns() + int(seconds * 1e9)
        # When the loop got its last elements.
        self.went_on = 0
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.is_over = False
        times.trace(self.spans)

    def waited(self, began: int, ready: int) -> None:
        """Adds a wait that has just ended, and the number of ready blocks."""
        if self.went_on:
            self.spans.add(LOOP, self.went_on, began - self.went_on)
        self.went_on = perf_counter_ns()
        self.spans.add(WAIT, began, self.went_on - began)
        self.spans.ready.append((self.went_on, ready))

    def finish(self) -> None:
        """Writes the file, once; a full disk should not end a training."""
        if os.getpid() != self._process:
            return
        self._times.trace(None)
        with self._lock:
            if self.is_over:
                return
            self.is_over = True
        try:
            with written_whole(self._path) as out:
                out.write(json.dumps(trace_of(self.spans), separators=(",", ":")).encode())
        except OSError as error:
            _log.warning("the trace %r cannot be written: %s", self._path, error)


def trace_of(spans: Spans) -> dict[str, Any]:
    """The trace as plain values, sorted by time."""
    kept, own = list(spans.kept), os.getpid()
    began = min((span.began for span in kept), default=0)
    # Outer spans come before inner ones.
    events = [_event(span, began) for span in sorted(kept, key=lambda span: -span.nanoseconds)]
    for at, blocks in spans.ready:
        counted = {"name": "ready blocks", "ph": "C", "pid": own, "args": {"blocks": blocks}}
        events.append({**counted, "ts": max(0, at - began) / 1000})
    events.sort(key=lambda event: event["ts"])
    events[:0] = _names(kept, own, sorted(spans.workers))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"most_spans": MOST_SPANS, "is_cut": len(kept) == MOST_SPANS},
    }


def _event(span: WorkSpan, began: int) -> dict[str, Any]:
    event = {
        "name": clipped(printable(span.name), _MOST_NAME) or UNWRITTEN,
        "ph": "X",
        "ts": (span.began - began) / 1000,
        "dur": span.nanoseconds / 1000,
        "pid": span.process,
        "tid": span.thread,
    }
    args = {"records": span.records, "first": span.first}
    known = {name: value for name, value in args.items() if value >= 0}
    return {**event, "args": known} if known else event


def _names(kept: list[WorkSpan], own: int, workers: list[int]) -> Iterator[dict[str, Any]]:
    """The names of processes and threads."""
    names = {own: "training", **{pid: f"worker {n}" for n, pid in enumerate(workers)}}
    for process, name in names.items():
        yield _name("process_name", process, process, name)
    loops = {span.thread for span in kept if span.process == own and span.name == WAIT}
    for process, thread in sorted({(span.process, span.thread) for span in kept}):
        is_loop = process == own and thread in loops
        yield _name("thread_name", process, thread, "loop" if is_loop else f"thread {thread}")


def _name(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def start_trace(iterator: Any, seconds: float, path: str) -> None:
    """Traces an iterator for so many seconds from now on."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise PlanError(f"`seconds` is how long to trace, more than 0; it is {seconds!r}.")
    if not isinstance(iterator, TimedIterator):
        raise PlanError(
            "this iterator does not time its steps, and has nothing to trace: make it by "
            "`bushel.iterate(dataset)`."
        )
    if getattr(iterator, "_trace", None) is not None:
        raise PlanError("this iterator is being traced already: one trace at a time.")
    check_file(path, "a trace", "trace.json")
    trace = Trace(iterator._times, min(seconds, 1e9), path)
    # Also if the iterator is just freed, or the program ends.
    finalizer = weakref.finalize(iterator, trace.finish)
    become(iterator, _traced, _trace=trace, _ends_trace=finalizer)


def _traced(kind: type[TimedIterator[Any]]) -> type[TimedIterator[Any]]:
    """A traced class for iterators of this class, until the trace ends."""

    class Traced(kind):  # type: ignore[valid-type, misc]
        _trace: Trace
        _ends_trace: "weakref.finalize[[], Any]"

        def _refill(self, used: Ready) -> bool:
            trace, began = self._trace, perf_counter_ns()
            if trace is None or began >= trace.ends:
                self._end_trace()
                return kind._refill(self, used)
            more = kind._refill(self, used)
            trace.waited(began, self._ready_blocks())
            if not more:
                self._end_trace()
            return more

        def _end_trace(self) -> None:
            self._ends_trace()
            self._trace = None  # type: ignore[assignment]
            become_again(self, _traced)

        def close(self) -> None:
            kind.close(self)
            if self._trace is not None:
                self._end_trace()

    return Traced
