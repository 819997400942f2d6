"""`DatasetIterator`: elements one by one, a state at each; errors after a close or a fork."""

import functools
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bushel.checkpoint.code_and_files import MadeWith, restore_into, tell_changes
from bushel.checkpoint.signed import Pipeline, growth_since, made_of, sign, verify
from bushel.core.block import Failure, failure_of
from bushel.core.block_size import FEW, BlockSize
from bushel.core.closing import Closing
from bushel.core.ending import park_at_the_end
from bushel.core.naming import steps_in_line
from bushel.core.node import Node
from bushel.core.state import State, copy_state
from bushel.core.state_fields import check_state
from bushel.core.stream import Chunk, FixedMarks, Marks, NoMarks, OnDemand, Stream, beginning_of
from bushel.deliver.figures import Figures
from bushel.deliver.ready_elements import Ready
from bushel.deliver.saving import load_from, save_into
from bushel.deliver.waits import Waits
from bushel.errors import ClosedError, FatalElementError, ForkedError, StateError

if TYPE_CHECKING:
    from bushel.deliver.run_history import RunHistory
    from bushel.watch.explanation import Explanation
    from bushel.watch.stats import Stats

T = TypeVar("T")


class DatasetIterator(Closing, Iterator[T], Generic[T], ABC):
    """Iterator over a dataset, whose position can be saved and restored.

    Your own subclasses define `__next__`, `get_state` and `set_state`, and have the
    iterator that they read from in `self._parent`.
    """

    _parents: "tuple[DatasetIterator[Any], ...]" = ()

    def __init__(
        self, parents: "DatasetIterator[Any] | Sequence[DatasetIterator[Any]]" = ()
    ) -> None:
        self._parents = tuple(parents) if isinstance(parents, (list, tuple)) else (parents,)  # type: ignore[assignment]

    @property
    def _parent(self) -> "DatasetIterator[Any]":
        assert len(self._parents) == 1, self._parents
        return self._parents[0]

    def __iter__(self) -> "DatasetIterator[T]":
        return self

    @abstractmethod
    def __next__(self) -> T:
        """The next element."""

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """The position, as a dict of plain values."""

    @abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Goes back to a position that the same pipeline had."""

    def state_dict(self) -> dict[str, Any]:
        """The same as `get_state`, under the name in torch's stateful loaders."""
        return self.get_state()

    def load_state_dict(self, state: dict[str, Any], strict: bool = False) -> None:
        """The same as `set_state`."""
        restore_into(self, state, strict)

    async def save(self, directory: Any) -> Awaitable[None]:
        """Takes the state, and returns an awaitable that writes it to a folder, for Orbax.

        The iterator may go on at once: the state of the moment of the call is written.
        """
        return save_into(directory, self.get_state())

    async def load(self, directory: Any) -> Awaitable[None]:
        """Reads the state from a folder that `save` or a `CheckpointHandler` wrote."""
        return load_from(directory, self.set_state)

    def start_prefetch(self) -> None:
        """Starts prefetching, if the iterator prefetches, before the first `next`."""
        for parent in self._parents:
            parent.start_prefetch()

    def close(self) -> None:
        """Stops the threads and worker processes of the whole chain; may be called again."""
        for parent in self._parents:
            parent.close()

    def explain(self) -> "Explanation":
        """Explains the steps of the pipeline, and where each of them runs.

        Reads no data, and does not move the iterator.
        """
        from bushel.watch.explain import explain_iterator  # Of a row above: imported when used.

        return explain_iterator(self)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()


# Limits of the elements on demand that are made at a time: their number, bytes and seconds. With
# so many, the overhead per element is small; with more, they would leave the processor's cache,
# and come late.
_MOST_AT_A_TIME = 8
_BYTES_AT_A_TIME = 1 << 21
_SECONDS_AT_A_TIME = 0.0005


class StreamIterator(DatasetIterator[T]):
    """Delivers the elements of a stream.

    Several threads may use it at once: each element goes to one
    of the threads that call `next`, `get_state` returns a place between two elements, and
    `set_state` waits until no other thread is computing elements. Any thread may call `close`,
    while others wait in `next`; after it, `next` raises a `ClosedError`.
    """

    _due = math.inf  # When to update the statistics next; a subclass that has some sets it.

    def __init__(
        self,
        stream: Stream,
        pipeline: Pipeline,
        made_with: Callable[[], MadeWith] = dict,
        node: Node | None = None,
    ) -> None:
        """`node` is the pipeline, for `explain` and `where`."""
        super().__init__()
        self._stream = stream
        self._pipeline = pipeline
        self._node = node
        # Digests of functions and files, computed for the first state.
        self._made_with = functools.cache(made_with)
        self._block_size = BlockSize(few=FEW)
        # Held while the stream is used. Reentrant: a signal handler may save a state meanwhile.
        self._lock = threading.RLock()
        self._ready = Ready([], FixedMarks({}))
        self._rows: Iterator[T] = self._ready.rows
        # Elements that are made when they are taken, if the stream has such now.
        self._on_demand: OnDemand | None = None
        self._at_a_time = BlockSize(
            _MOST_AT_A_TIME, most_bytes=_BYTES_AT_A_TIME, target_seconds=_SECONDS_AT_A_TIME
        )
        # True while the stream is pulled. If it is still True at the next pull, an interrupt
        # stopped the last one.
        self._asking = False
        # For subclasses that process an element before its delivery: the element at which they
        # were interrupted, and its number.
        self._held: tuple[int, T] | None = None
        # A `FatalElementError` after the ready elements; its element is tried again afterwards.
        self._fatal: Failure | None = None
        # True before the first pull: the state is then the stream's own.
        self._fresh = True
        # Closed: `close` was called. Over: the stream is closed.
        self._closed = self._over = False
        self._process = os.getpid()
        # Number of delivered elements, without those of `_ready`.
        self._handed_out = 0
        self._waits = Waits()

    def __next__(self) -> T:
        # A `for` statement takes one element of the list's iterator at the speed of C.
        for row in self._rows:
            return row
        while True:
            ready = self._ready
            for row in ready.rows:
                return row
            for failure in ready.failures:
                raised, failure.error = failure.error, None
                assert raised is not None
                try:
                    raise raised
                finally:
                    # This frame is on the traceback: it must not refer to the exception in turn.
                    del raised, failure
            # Repeated if all elements of a refill were dropped.
            if not self._refill(ready):
                raise StopIteration

    def _refill(self, used: Ready) -> bool:
        """Gets the elements after `used`; returns False at the end of the stream."""
        if os.getpid() != self._process:
            self._check_process()
        began = time.perf_counter()
        try:
            with self._lock:
                if self._ready is not used:
                    return True  # Another thread has refilled.
                if self._closed:
                    self._check_open()
                if self._asking:
                    self._go_back()
                self._asking = True
                if began >= self._due:  # Before the pull, which may hang.
                    self._look()
                ready = self._made_a_few() or self._read_on()
                handed_out = self._handed_out + used.used
                self._waits.add(began, time.perf_counter(), handed_out)
                if ready is None:
                    self._note_the_end()
                    self._asking = False
                    return False
                # One assignment at the very end: after an interrupt, either nothing has changed,
                # or the new elements are ready.
                self._ready, self._rows, self._handed_out, self._asking = (
                    ready,
                    ready.rows,
                    handed_out,
                    False,
                )
                return True
        except ClosedError:
            park_at_the_end()
            raise

    def _look(self) -> None:
        """Updates the statistics, in subclasses that have some."""

    def _note_the_end(self) -> None:
        """Takes note that there are no more elements."""

    def _go_back(self) -> None:
        """Goes back to the last delivered element, after an interrupted or failed pull.

        Elements that were pulled and not delivered are pulled again. (A user's iterator without
        states cannot go back.)
        """
        self._on_demand = None
        with suppress(StateError):
            self._stream.restore(self._state_now())

    def _made_a_few(self) -> Ready | None:
        """Makes a few elements on demand, or finds that the next one fails."""
        on_demand = self._on_demand
        if on_demand is None:
            return None
        made: list[Any] = []
        failure: Failure | None = None
        size = self._at_a_time
        began = time.perf_counter()
        try:
            made.extend(islice(on_demand.rows, size.size))
        except Exception as error:  # `made` has the elements before the failure.
            failure, on_demand.failed = failure_of(error), True
            self._name_record(failure)
        if not made or failure is not None:
            self._on_demand = None
            if failure is None:
                return None
        seconds = time.perf_counter() - began
        on_demand.seconds += seconds
        size.learn(len(made), seconds)
        if made and size.wants_sample():
            size.limit_bytes(made[0])
        return Ready(made, on_demand.take_marks(), failure, one_by_one=True)

    def _read_on(self) -> Ready | None:
        """Gets more from the stream."""
        self._raise_fatal()
        return self._begun_on_demand() or self._pulled()

    def _begun_on_demand(self) -> Ready | None:
        """Starts elements on demand, if the stream now prefers them."""
        self._on_demand = None if self._fresh else self._stream.on_demand()
        return self._made_a_few()

    def _pulled(self) -> Ready | None:
        """Pulls elements from the stream; None at the end."""
        if self._fresh:
            # The state before the first element, also after elements were dropped; `_go_back`
            # restores it after an interrupt.
            self._ready, self._fresh = Ready([], beginning_of(self._stream)), False
        while (chunk := self._pull()) is not None:
            block = chunk.block
            if not len(block) and block.failure is None:
                continue  # All were dropped: the state stays that of the last element.
            made = block.rows()
            failure = block.failure
            if failure is not None:
                self._name_record(failure)
            if failure is not None and isinstance(failure.error, FatalElementError):
                self._fatal, failure = failure, None
                if not made:
                    self._raise_fatal()
            if made and self._block_size.wants_sample():
                self._block_size.limit_bytes(made[0])
            return Ready(made, chunk.marks, failure)
        return None

    def _name_record(self, failure: Failure) -> None:
        """Adds the record to the error of an element that failed."""
        from bushel.deliver.failed_record import note_record  # Only needed after a failure.

        note_record(failure.error, self._node)

    def _raise_fatal(self) -> None:
        """Raises for an element that killed workers; the next pull tries the element again.

        The workers may have died of another cause.
        """
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal.release()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(
                "this iterator was closed and cannot go on. Make another one with `iter(dataset)`."
            )

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ForkedError(
                "this iterator was made before a fork, and its threads stayed in the parent. "
                "Make another one with `iter(dataset)` in the child."
            )

    def _pull(self) -> Chunk | None:
        want = self._block_size.size if self._stream.eager else 1
        began = time.perf_counter()
        chunk = self._stream.pull(want)
        if chunk is not None:
            # Per wanted element: a filter that keeps few elements is not slower per position.
            self._block_size.learn(max(want, len(chunk.block)), time.perf_counter() - began)
        return chunk

    def _alone(self) -> AbstractContextManager[Any]:
        """Holds the lock; not in a forked child, where a thread of the parent may have held it."""
        return self._lock if os.getpid() == self._process else nullcontext()

    def _state(self) -> State:
        with self._alone():
            return self._state_now()

    def _state_now(self) -> State:
        if self._held is not None and (before := self._ready.before()) is not None:
            return before
        return self._stream.state() if self._fresh else self._ready.state()

    def state_before_last(self) -> State | None:
        """The state before the element that was delivered last; None before the first."""
        with self._alone():
            return None if self._fresh else self._ready.before()

    def get_state(self) -> dict[str, Any]:
        # A copy, since the user may change it.
        return sign(copy_state(self._state()), self._pipeline, self._made_with())

    def _state_to_count(self) -> State:
        """A state for `mix_counts`, with the elements of packed rows that were delivered."""
        from bushel.deliver.handed_out import state_of_rows  # Only needed for `mix_counts`.

        return state_of_rows(self._node, copy_state(self._state()))

    def set_state(self, state: dict[str, Any], strict: bool = False) -> None:
        """Goes back to a position; `strict` refuses a state whose code or files have changed."""
        bare = copy_state(verify(state, self._pipeline))
        growth = growth_since(state, self._pipeline)
        self._go_to(bare, lambda: tell_changes(made_of(state), self._made_with, strict, growth))

    def _go_to(self, state: State, tell: Callable[[], None] | None = None) -> None:
        check_state(self._stream, state)
        if tell is not None:
            tell()  # Warns, or refuses, after the state was found to be valid.
        with self._alone():
            # Until the restore is done, the place is the old one, to which `_go_back` returns
            # after an interrupt, or several.
            self._forget_but(FixedMarks(self._state_now()))
            self._stream.restore(state)
            self._fresh, self._asking = True, False

    def _forget_but(self, marks: Marks) -> None:
        """Discards all ready elements; the next pull first restores the state of `marks`."""
        ready = Ready([], marks)
        self._handed_out, self._ready, self._rows, self._held, self._fresh, self._asking = (
            self._handed_out + self._ready.used,
            ready,
            ready.rows,
            None,
            False,
            True,
        )
        self._on_demand = self._fatal = None

    def start_prefetch(self) -> None:
        if self._closed or not self._fresh:
            return
        self._check_process()
        with self._lock:
            try:
                self._stream.start()
            except BaseException:
                with suppress(StateError):
                    self._stream.restore(self._state_now())
                raise

    def close(self) -> None:
        self._closed = True
        # Ends the wait of other threads in `next`.
        for wake in self._stream.wakers:
            wake()
        with self._alone():
            if self._over:
                return
            marks: Marks
            try:
                marks = FixedMarks(self._state_now())
            except StateError as error:
                marks = NoMarks(error)
            self._over = True
            self._stream.close()
            # `get_state` still works after `close`.
            self._forget_but(marks)

    def _get_next_index(self) -> int:
        return self._stream.index_in(self._state())

    def _set_next_index(self, index: int) -> None:
        self._go_to(self._stream.state_for(index))

    def stats(self) -> "Stats":
        """Statistics so far: the waits of the loop, and the work of the steps.

        Only iterators of `bushel.iterate(dataset, stats=True)` have statistics of the steps.
        """
        from bushel.watch.stats import stats_of

        with self._alone():
            figures = self._figures()
        return stats_of(figures, self._node)

    def report(self, path: "str | os.PathLike[str]", *, private: bool = True) -> None:
        """Writes an HTML page about the run so far: why it is slow, the steps, charts over time.

        It is one file for any browser, without scripts, which loads nothing. It has steps, workers
        and the slowest blocks only if there are statistics of the steps, as for `stats`.

        Args:
            path: the file to write; an existing file is replaced.
            private: leaves out the keys of records, and possible secrets in the addresses of
                remote files: query strings, and names and passwords of users.
        """
        from bushel.provenance.report_on import report_on

        report_on(self, os.fspath(path), private)

    def _history(self, figures: Figures) -> "RunHistory | None":
        """The history of the run up to these figures, in subclasses that record it."""
        return None

    def trace(self, seconds: float, path: "str | os.PathLike[str]") -> None:
        """Records when each step runs, and on which thread or in which worker.

        The file, in Chrome's format for `ui.perfetto.dev`, is written at the first `next` after
        the time is over, or when the iterator ends or is closed before. All blocks are timed
        meanwhile, so it runs a little slower. Only iterators of `bushel.iterate` have it.

        Args:
            seconds: how long to trace; the last 65,536 spans are kept.
            path: the file to write; an existing file is replaced.
        """
        from bushel.watch.trace import start_trace

        with self._alone():
            self._check_open()
            start_trace(self, seconds, os.fspath(path))
            # Elements on demand were started without a trace: the next pull starts them again.
            self._asking |= self._on_demand is not None

    def _figures(self, **others: Any) -> Figures:
        waits = self._waits
        return Figures(
            elements=self._handed_out + self._ready.used,
            elapsed_seconds=waits.elapsed(),
            wait_seconds=waits.seconds,
            refills=waits.refills,
            ready_refills=waits.ready,
            longest_wait_seconds=waits.longest_seconds,
            longest_wait_at=waits.longest_at,
            first_wait_seconds=waits.first_seconds,
            **others,
        )

    def __repr__(self) -> str:
        return f"DatasetIterator({steps_in_line([step.strip() for step in self._pipeline])})"
