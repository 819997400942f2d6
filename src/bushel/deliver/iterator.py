"""Iterators: elements one by one, and a state at every one of them."""

import operator
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from bushel.checkpoint.state import Pipeline, sign, verify
from bushel.core.block import Failure, failure_of
from bushel.core.state import State, copy_state
from bushel.core.stream import Chunk, FixedMarks, Marks, NoMarks, Stream, Trickle, beginning_of
from bushel.deliver.device import process_index_and_count, wait_for_all_processes
from bushel.errors import ClosedError, ForkedError, StateError
from bushel.run.tune import BlockSize

T = TypeVar("T")

_NOTHING: Iterator[Any] = iter(())


class DatasetIterator(Iterator[T], Generic[T], ABC):
    """Iterator over a dataset whose position can be saved and put back.

    Subclasses of your own define `__next__`, `get_state` and `set_state`, and find the
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
        """The same as `get_state`, under the name that torch's stateful loaders give it."""
        return self.get_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The same as `set_state`."""
        self.set_state(state)

    async def save(self, directory: Any) -> Awaitable[None]:
        """Takes the state, and returns what writes it into a folder, as Orbax asks for it.

        The iterator may go on at once: what is written is the state as it is now.
        """
        return save_into(directory, self.get_state())

    async def load(self, directory: Any) -> Awaitable[None]:
        """Reads the state from a folder that `save` or a `CheckpointHandler` wrote."""
        return load_from(directory, self.set_state)

    def start_prefetch(self) -> None:
        """Begins background work, if there is any, before the first element is asked for."""
        for parent in self._parents:
            parent.start_prefetch()

    def close(self) -> None:
        """Stops the threads and worker processes of the whole chain; may be called again."""
        for parent in self._parents:
            parent.close()

    def __enter__(self) -> "DatasetIterator[T]":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class StreamIterator(DatasetIterator[T]):
    """Hands out the elements of a stream."""

    def __init__(self, stream: Stream, pipeline: Pipeline) -> None:
        super().__init__()
        self._stream = stream
        self._pipeline = pipeline
        self._block_size = BlockSize()
        self._rows: Iterator[T] = iter(())
        self._size = 0
        # Where elements are made when they are taken.
        self._trickle: Trickle | None = None
        # While the stream is asked. If it still is at the next time, it was interrupted.
        self._asking = False
        self._marks: Marks = FixedMarks({})
        # Until something was pulled, the state is the stream's own.
        self._fresh = True
        self._failure: Failure | None = None
        self._past_failure = False
        self._closed = False
        self._process = os.getpid()

    def __next__(self) -> T:
        try:
            # A `for` statement takes one element of the list's iterator at the speed of C. An
            # interrupt strikes where something is called; so nothing is between taking an
            # element, or a failure, and handing it out.
            for row in self._rows:
                return row
            # More than once where all elements of a refill were dropped as they were made.
            while self._failure is None and self._refill():
                for row in self._rows:
                    return row
        except BaseException as error:
            trickle, self._trickle = self._trickle, None
            if trickle is None:
                raise  # Not from an element that was being made.
            self._rows = _NOTHING
            if not isinstance(error, Exception):
                raise
            stumble = failure_of(error)
            trickle.failed, self._failure = True, stumble
        failure = self._failure
        if failure is None:
            raise StopIteration
        raised, failure.error = failure.error, None
        self._failure, self._past_failure = None, True
        assert raised is not None
        try:
            raise raised
        finally:
            # This frame is on the traceback: it must not refer to the exception in turn.
            del raised

    def _refill(self) -> bool:
        """Gets the next rows and what failed after them; False at the end of the stream."""
        self._trickle = None  # It is used up: what fails from here on is no element of it.
        if self._closed:
            raise ClosedError(
                "this iterator was closed and cannot go on. Make another one with `iter(dataset)`."
            )
        self._check_process()
        if self._asking:
            # By an interrupt, or an error that belongs to no element. What was pulled and not
            # handed out is pulled again (from a user's iterator that has no state, it cannot
            # be).
            with suppress(StateError):
                self._stream.restore(self._state())
        self._asking = True
        more = self._trickled() or self._pulled()
        self._asking = False
        return more

    def _trickled(self) -> bool:
        """Gets rows that are made when they are taken, where that is better now."""
        trickle = None if self._fresh else self._stream.trickle()
        if trickle is None:
            return False
        # In one go, as below: an interrupt finds what was, or what is to come.
        self._rows, self._marks, self._trickle = trickle.rows, trickle.marks, trickle
        self._size, self._past_failure = 0, False
        return True

    def _pulled(self) -> bool:
        """Gets rows that have been made."""
        if self._fresh:
            # The place to go back to after an interrupt, and the state until there is an
            # element: what is dropped before the first one does not change it.
            self._marks, self._fresh = beginning_of(self._stream), False
        while (chunk := self._pull()) is not None:
            block = chunk.block
            if not len(block) and block.failure is None:
                continue  # All dropped: the state stays that of the last element.
            made = block.rows()
            if made and self._block_size.wants_sample():
                self._block_size.limit_bytes(made[0])
            size, rows = len(made), iter(made)
            self._rows, self._marks, self._trickle = rows, chunk.marks, None
            self._size, self._past_failure = size, False
            self._failure = block.failure
            return True
        return False

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
            # By what was asked for: a filter that leaves little of it is no slower for that.
            self._block_size.learn(max(want, len(chunk.block)), time.perf_counter() - began)
        return chunk

    def _state(self) -> State:
        if self._fresh:
            return self._stream.state()
        used = self._size - operator.length_hint(self._rows)
        return self._marks.at(used + self._past_failure)

    def get_state(self) -> dict[str, Any]:
        # A copy: what the user does with it is not our state.
        return sign(copy_state(self._state()), self._pipeline)

    def set_state(self, state: dict[str, Any]) -> None:
        self._go_to(copy_state(verify(state, self._pipeline)))

    def _go_to(self, state: State) -> None:
        before = self._state()
        try:
            self._stream.restore(state)
        except BaseException:
            self._stream.restore(before)
            self._forget()
            raise
        self._forget()

    def _forget(self) -> None:
        self._rows, self._trickle, self._asking = iter(()), None, False
        self._size, self._fresh = 0, True
        self._failure, self._past_failure = None, False

    def start_prefetch(self) -> None:
        if self._closed or not self._fresh:
            return
        self._check_process()
        try:
            self._stream.start()
        except BaseException:
            with suppress(StateError):
                self._stream.restore(self._state())
            raise

    def close(self) -> None:
        if not self._closed:
            marks: Marks
            try:
                marks = FixedMarks(self._state())
            except StateError as error:
                marks = NoMarks(error)
            self._closed = True
            self._stream.close()
            self._forget()
            # The state can still be asked for.
            self._marks, self._fresh = marks, False

    def _get_next_index(self) -> int:
        return self._stream.index_in(self._state())

    def _set_next_index(self, index: int) -> None:
        self._go_to(self._stream.state_for(index))

    def __repr__(self) -> str:
        return f"DatasetIterator({' -> '.join(step.strip() for step in self._pipeline)})"


async def _write(directory: Any, text: bytes) -> None:
    from bushel.checkpoint.files import write_encoded

    # Orbax's folders are made in the background; a path is taken for one that is there.
    wait = getattr(directory, "await_creation", None)
    folder = directory if wait is None else await wait()
    index, count = process_index_and_count()
    write_encoded(folder, text, index, count)
    if count > 1:
        import asyncio

        # Orbax renames the folder when the first process is done with it. And its loop must not
        # wait here: there may be a model to be saved, for which others wait.
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, wait_for_all_processes, f"saved to {folder}")


def save_into(directory: Any, state: object) -> Awaitable[None]:
    """Encodes a state now, and returns what writes it when the folder is there."""
    from bushel.checkpoint.files import encode

    return _write(directory, encode(state))


async def _nothing() -> None:
    pass


def load_from(directory: Any, restore: Callable[[dict[str, Any]], None]) -> Awaitable[None]:
    """Restores the state in a folder; nothing is left to wait for.

    All at once, because whatever fails in what Orbax waits for becomes another error there,
    which does not say why.
    """
    from bushel.checkpoint.files import read_state

    restore(read_state(directory, *process_index_and_count()))
    return _nothing()


def get_next_index(ds_iter: DatasetIterator[Any]) -> int:
    """Returns the index of the element that an iterator produces next.

    Raises NotImplementedError where that takes more than arithmetic (after a filter).
    """
    return cast(int, _indexed(ds_iter)._get_next_index())


def set_next_index(ds_iter: DatasetIterator[Any], index: int) -> None:
    """Moves an iterator to an element without producing the ones before."""
    _indexed(ds_iter)._set_next_index(operator.index(index))


def _indexed(ds_iter: Any) -> Any:
    if not isinstance(ds_iter, DatasetIterator):
        raise TypeError(f"this takes a dataset's iterator, and got a {type(ds_iter).__name__}.")
    if not hasattr(ds_iter, "_get_next_index"):
        raise NotImplementedError(f"{type(ds_iter).__name__} does not tell elements by index.")
    return ds_iter
