"""The flight recorder: writes states, waits, checksums, events of a run to a file; how often.

Lines of JSON, each written by one call at the end of the file, so that however the program ends,
all lines except perhaps the last are complete. The first describes what was recorded; every so many
steps there is one with the state before a step, the checksum of the delivered element, and the wait
of the loop since the last line; other lines are events in between. `recording.py` reads it.
"""

import errno
import itertools
import json
import logging
import operator
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np

from bushel.checkpoint.signed import Pipeline, describe_pipeline
from bushel.core.derived_class import become
from bushel.core.machine import available_cores
from bushel.core.naming import source_name
from bushel.core.node import Drop, Guard, Node, walk
from bushel.core.state import State
from bushel.deliver.iterator import StreamIterator
from bushel.deliver.job import process_if_known
from bushel.errors import FileError, PlanError, StateError
from bushel.on_error.budget import bad_records_in
from bushel.run.worker_figures import WorkerFigures
from bushel.watch.checksum import checksum
from bushel.watch.explain_notes import size_of_source

VERSION = 1
# Statistics of all steps are written after every so many lines, and early in short runs: they are
# ten times as long as a line.
_LINES_A_STATS = 64
_NEVER = sys.maxsize
# Steps between two lines by default; and the share of the time above which lines become fewer, and
# below which they become more again.
_EVERY, _MOST_EVERY = 100, 100 << 14
_MOST_SHARE, _LEAST_SHARE = 0.002, 0.0005

_log = logging.getLogger("bushel")


def recorded(
    iterator: Any,
    path: str | os.PathLike[str],
    every: int | None,
    first_step: int | None,
    checksums: bool = True,
) -> Any:
    """The iterator of a dataset or loader, with a recording."""
    adapts, every = every is None, _EVERY if every is None else every
    if not isinstance(every, (int, np.integer)) or isinstance(every, bool) or every < 1:
        raise PlanError(
            f"`every` is a number of steps, at least 1, after which the recorder writes a line; "
            f"it is {every!r}."
        )
    if first_step is not None and operator.index(first_step) < 0:
        raise PlanError(f"`first_step` is the number of a step, and cannot be {first_step}.")
    stream: StreamIterator[Any] = getattr(iterator, "_iterator", iterator)
    header = _header(iterator, stream, int(every))
    recorder = Recorder(_new_file(os.fspath(path)))
    recorder.write(header)
    become(
        stream,
        _recorded,
        _recorder=recorder,
        _every=int(every),
        _adapts=adapts,
        _first_step=first_step,
        _step=first_step or 0,
        _line_at=0,
        _notes=_ToldAlready(stream, recorder, checksums),
    )
    iterator.recording = recorder.path
    return iterator


def steps_between(every: int, spent: float, seconds: float) -> int:
    """The number of steps to the next line, if one line took `spent` of `seconds`.

    >>> steps_between(100, 0.0001, 1.0), steps_between(100, 0.0001, 0.001)
    (100, 200)
    >>> steps_between(400, 0.0001, 0.1), steps_between(400, 0.0001, 1.0)
    (400, 200)
    """
    if spent > _MOST_SHARE * seconds:
        return min(2 * every, _MOST_EVERY)
    return max(every // 2, _EVERY) if spent < _LEAST_SHARE * seconds else every


class Recorder:
    """The file, as long as the process that made it can write to it."""

    def __init__(self, opened: tuple[int, str]) -> None:
        self._descriptor: int | None
        self._descriptor, self.path = opened
        self._process = os.getpid()
        # Held while writing and closing, as the number of a closed descriptor may be reused.
        self._lock = threading.RLock()

    @property
    def works(self) -> bool:
        """Whether lines are still written; not in a forked process, whose iterator is another."""
        return self._descriptor is not None and os.getpid() == self._process

    def write(self, line: dict[str, Any]) -> None:
        """Adds a line, or gives up with a warning: a full disk should not end a training."""
        try:
            data = _encoded(line)
        except (TypeError, ValueError, RecursionError):
            # The state of a user's own iterator may be anything.
            data = _encoded({**line, "state": None})
        if not self.works:
            return
        with self._lock:
            if self._descriptor is None:
                return
            try:
                if os.write(self._descriptor, data) == len(data):
                    return
                problem = os.strerror(errno.ENOSPC)
            except OSError as error:
                if error.errno is None:
                    raise  # From a user's signal handler.
                problem = os.strerror(error.errno)
            self.close()
        _log.warning(
            "the recording %r ends before step %s: it cannot be written any more (%s). The "
            "training goes on without it.",
            self.path,
            line.get("step", 0),
            problem,
        )

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)

    def __del__(self) -> None:
        # Without the lock: no other code is left, except a thread of the process before a fork. (At
        # the end of the program `os` may be gone: the system closes open files.)
        if self._descriptor is not None and os is not None:
            os.close(self._descriptor)


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def path_of_host(path: str) -> str:
    """The path, with the number of this host in it if there are several."""
    host, hosts = process_if_known()
    stem, ending = os.path.splitext(path)
    return f"{stem}.host{host}{ending}" if hosts > 1 else path


def _new_file(path: str) -> tuple[int, str]:
    """Opens a new file: with this name, or with the name and a number."""
    stem, ending = os.path.splitext(path_of_host(path))
    for number in itertools.count(1):
        name = f"{stem}{ending}" if number == 1 else f"{stem}-{number}{ending}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(name, flags, 0o600), name
        except FileExistsError:
            continue
        except OSError as error:
            raise FileError(
                f"the recording {name!r} cannot be written: {error.strerror}. `record=` is the "
                "path of a new file, in a folder that is there."
            ) from None
    raise AssertionError


def _header(iterator: Any, stream: StreamIterator[Any], every: int) -> dict[str, Any]:
    host, hosts = process_if_known()
    header: dict[str, Any] = {
        "bushel": VERSION,
        "every": every,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": host,
        "hosts": hosts,
        "cores": available_cores(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "bushel": sys.modules["bushel"].__version__,
        },
        "pipeline": steps_of(stream),
        "made_with": stream._made_with(),
        "sources": _sources(stream._node),
    }
    if iterator is not stream:
        # States of a loader have more fields than those of its stream.
        whole = iterator.state_dict()
        header["loader"] = {**whole, "bushel": {**whole["bushel"], "state": None}}
    return header


def steps_of(stream: StreamIterator[Any]) -> Pipeline:
    """The description of a pipeline in states; a loader has its own."""
    if stream._pipeline or stream._node is None:
        return stream._pipeline
    return describe_pipeline(stream._node)


def _sources(node: Node | None) -> list[dict[str, Any]]:
    """The description of each source, as far as known without reading."""
    found: dict[int, dict[str, Any]] = {}
    for step in walk(node) if node is not None else ():
        source = getattr(step, "source", None)
        if source is not None and id(source) not in found:
            files, size = size_of_source(source)
            found[id(source)] = {"name": source_name(source), "files": files, "bytes": size}
    return list(found.values())


class _ToldAlready:
    """What was recorded already, so that only changes become lines."""

    def __init__(self, stream: StreamIterator[Any], recorder: Recorder, checksums: bool) -> None:
        self._recorder, self._checksums = recorder, checksums
        # Whether the number in a state is that of a step: not if elements may be dropped.
        node = stream._node
        self.states_tell_steps = node is not None and not any(
            isinstance(step, (Drop, Guard)) for step in walk(node)
        )
        self.written_at = time.perf_counter()
        self._wait = 0.0
        self._lines = 0
        self._bad: list[int] | None = None
        self._threads: tuple[str, ...] | None = None
        self._workers: tuple[WorkerFigures, ...] = ()
        self.ended = False
        # The failure that was counted last.
        self.failed: object = None

    def times(self, stream: StreamIterator[Any]) -> dict[str, float]:
        """Seconds since the last line, and those of them that the loop waited."""
        now, wait = time.perf_counter(), stream._waits.seconds
        seconds, waited = now - self.written_at, wait - self._wait
        self.written_at, self._wait = now, wait
        return {"wait": round(max(0.0, waited), 6), "seconds": round(seconds, 6)}

    def step(
        self, stream: StreamIterator[Any], step: int, state: State | None, element: Any
    ) -> None:
        """Records a step."""
        self.events(stream, step, state)
        crc = checksum(element) if self._checksums else None
        self._recorder.write({"step": step, "state": state, **self.times(stream), "crc": crc})
        self._lines += 1
        if self._lines in (4, 16) or not self._lines % _LINES_A_STATS:
            self.stats(stream, step)

    def events(self, stream: StreamIterator[Any], step: int, state: State | None) -> None:
        """Records events since the last line."""
        if state is not None:
            bad = bad_records_in(state)
            more = sum(bad) - sum(self._bad or ())
            if more > 0 and self._bad is not None:
                self._event(step, "bad records", more=more, in_all=sum(bad))
            self._bad = bad
        measured = getattr(stream, "_times", None)
        if measured is None:
            return
        threads = tuple(describe() for describe in measured.threads)
        if threads != self._threads and not any("trial" in text for text in threads):
            if self._threads is not None:
                self._event(step, "threads", was=list(self._threads), now=list(threads))
            self._threads = threads
        workers = tuple(figures() for figures in measured.workers)
        for number, (was, now) in enumerate(zip(self._workers, workers, strict=False)):
            if now.deaths > was.deaths:
                deaths, again = now.deaths - was.deaths, now.repeated_tasks - was.repeated_tasks
                self._event(step, "workers died", pool=number, deaths=deaths, repeated_tasks=again)
            known = was.changes[-1].seconds if was.changes else -1.0
            for change in now.changes:
                if change.seconds > known:
                    facts = {"was": change.was, "now": change.now, "why": change.why}
                    self._event(step, change.what, pool=number, **facts)
        self._workers = workers

    def stats(self, stream: StreamIterator[Any], step: int) -> None:
        """Records the statistics so far."""
        told = stream.stats().to_dict()
        self._event(step, "stats", stats={name: told[name] for name in told if name != "why_slow"})

    def moved(self, stream: StreamIterator[Any], was: int, step: int, counted: bool) -> None:
        """Records that a state was set: later steps are a new run."""
        self.ended, self._bad = False, None
        self._event(step, "state set", was=was, counted=counted, state=_state_of(stream))

    def last(self, stream: StreamIterator[Any], step: int, what: str) -> None:
        """Records the end of the data, or of the iterator."""
        state = _state_of(stream)
        self.events(stream, step, state)
        if not self.ended:
            self.stats(stream, step)
        self._event(step, what, state=state, **self.times(stream))
        self.ended = True

    def error(self, step: int, error: BaseException) -> None:
        """Records an exception in place of an element."""
        self._event(step, "error", what=type(error).__name__)

    def _event(self, step: int, event: str, **facts: Any) -> None:
        self._recorder.write({"step": step, "event": event, **facts})


def _state_of(stream: StreamIterator[Any]) -> State | None:
    try:
        return stream._state()
    except StateError:
        return None  # A user's own iterator need not have one.


def _recorded(kind: type[StreamIterator[Any]]) -> type[StreamIterator[Any]]:
    """A recorded class for iterators of this class.

    A derived class, so that other iterators have no overhead.
    """
    take = cast(Callable[[Any], Any], kind.__next__)
    takes_rows = take is StreamIterator.__next__

    class Recorded(kind):  # type: ignore[valid-type, misc]
        """An iterator that records what it does."""

        _recorder: Recorder
        _notes: _ToldAlready
        _every: int
        # Whether that number may grow, if lines take too much time.
        _adapts: bool
        _first_step: int | None
        # The number of the next step, and that of the next line.
        _step: int
        _line_at: int
        _held: tuple[int, Any] | None

        def __next__(self) -> Any:
            if self._held is not None:
                return self._hand_out_held()
            # As there: most elements are ready, and taken at the speed of C.
            for ready in self._rows if takes_rows else ():
                element = ready
                break
            else:
                try:
                    element = take(self)
                except BaseException as error:
                    self._failed(error)
                    raise
            # An interrupt, or another thread, comes in where something is called: nothing is,
            # between taking an element, counting and handing it out.
            step = self._step
            self._step = step + 1
            if step < self._line_at:
                return element
            self._line_at = step - step % self._every + self._every
            try:
                self._write_down(step, element)
            except BaseException:
                # No call here, either, as the next interrupt may come at once.
                self._held = step, element
                raise
            return element

        def _hand_out_held(self) -> Any:
            """Records an element again, and delivers it."""
            held, self._held = self._held, None
            if held is None:
                return self.__next__()  # Another thread was faster.
            try:
                self._write_down(*held)
            except BaseException:
                self._held = held
                raise
            return held[1]

        def _write_down(self, step: int, element: Any) -> None:
            if not self._recorder.works:
                self._line_at = _NEVER
                return
            state = self._before_last()
            if self._step != step + 1:
                state = None  # Another thread has taken one since.
            before, began = self._notes.written_at, time.perf_counter()
            self._notes.step(self, step, state, element)
            if self._adapts:
                spent = time.perf_counter() - began
                self._every = steps_between(self._every, spent, began - before)
                self._line_at = step - step % self._every + self._every

        def _before_last(self) -> State | None:
            try:
                return cast("State | None", self.state_before_last())
            except StateError:
                return None  # A user's own iterator need not have one.

        def _failed(self, error: BaseException) -> None:
            notes, ready = self._notes, self._ready
            if not self._recorder.works:
                return
            if isinstance(error, StopIteration):
                if not notes.ended:
                    notes.last(self, self._step, "end")
                return
            notes.error(self._step, error)
            if ready._used() > ready.used and notes.failed is not ready:
                # It was in place of an element.
                notes.failed = ready
                self._step += 1

        def _go_to(self, state: State, tell: Callable[[], None] | None = None) -> None:
            super()._go_to(state, tell)
            was, (number, counted) = self._step, self._number()
            first, self._first_step = self._first_step, None
            if first is not None and self._step == first:
                number, counted = first, True
            self._step = self._line_at = number
            if self._recorder.works:
                self._notes.moved(self, was, number, counted)

        def _number(self) -> tuple[int, bool]:
            """The number of the next step, and whether the state tells it."""
            if self._notes.states_tell_steps:
                with suppress(NotImplementedError, StateError):
                    return self._get_next_index(), True
            return self._step, False

        def close(self) -> None:
            was_closed = self._closed
            super().close()
            if not was_closed and self._recorder.works:
                self._notes.last(self, self._step, "closed")
                self._recorder.close()

    return Recorded
