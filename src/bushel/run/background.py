"""`prefetch`: pulls a stream in a thread of its own, and tunes the size of its buffer."""

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeAlias

from bushel.core.block_size import BlockSize
from bushel.core.ending import OwnThread, end_with_program, go_first
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.core.stream import Chunk, FixedMarks, Marks, Stream, beginning_of
from bushel.core.tuned_options import BufferBounds
from bushel.errors import ClosedError, StateError

Item: TypeAlias = Chunk | BaseException | None

# The initial number of chunks: one that is handed out and one that is made, each at most half of
# the buffer. There may be more if the consumer found none ready, and the buffer has room for all.
_CHUNKS = 2
# The most bytes of ready chunks, if the size of the buffer is tuned.
_MOST_BYTES = 1 << 26


class _Feeder:
    """A thread that pulls a stream; it has no reference to its consumer.

    Both queues are of the reentrant kind, so that a finalizer may call `stop` wherever it
    happens to run.
    """

    def __init__(self, stream: Stream, buffer: BufferBounds, clock: Callable[[], float]) -> None:
        self._buffer, self._grows = buffer, stream.eager
        # The number of permits: chunks that are ready, being made, or were taken last.
        self.chunks = _CHUNKS
        if buffer.is_tuned and stream.eager:
            self.chunks = max(_CHUNKS, min(buffer.least, buffer.most))
        self._items: SimpleQueue[Item] = SimpleQueue()
        # One permit for each chunk that there is room for; None ends the thread.
        self._permits: SimpleQueue[bool | None] = SimpleQueue()
        # Not empty once the remaining permits are void.
        self._stopped: list[bool] = []
        most = max(1, buffer.most // _CHUNKS) if stream.eager else 1
        self._size = BlockSize(most)
        thread = OwnThread(
            _feed,
            "bushel-prefetch",
            (stream, self._items, self._permits, self._stopped, self._size, clock),
        )
        self.threads = (thread,)

    def start(self) -> None:
        end_with_program(self)
        self.threads[0].start()
        # Not earlier: an interrupt may leave a thread behind that no code can join, and a thread
        # without a permit leaves the stream alone.
        for _ in range(self.chunks):
            self._permits.put(True)

    def take(self) -> Item:
        waited = self._items.empty()
        item = self._items.get()
        permits = 1
        if self._grows and isinstance(item, Chunk):
            permits = 1 + self._more(len(item.block), waited)
            self.chunks += permits - 1
        for _ in range(permits):
            self._permits.put(True)
        return item

    def _more(self, elements: int, waited: bool) -> int:
        """Adds a permit if the consumer found no chunk, or withdraws one if chunks are large."""
        if not self._has_room(self.chunks, elements):
            return -1 if self.chunks > _CHUNKS else 0
        return int(waited and self._has_room(self.chunks + 1, elements))

    def _has_room(self, chunks: int, elements: int) -> bool:
        ahead = chunks * max(1, elements)
        if self._buffer.is_tuned and ahead * self._size.bytes_each > _MOST_BYTES:
            return False
        return ahead <= self._buffer.most

    def stop(self, wait: bool) -> None:
        self.end_soon()
        thread = self.threads[0]
        if wait and thread.is_alive() and thread is not threading.current_thread():
            thread.join()

    def end_soon(self) -> None:
        self._stopped.append(True)
        self._permits.put(None)


def _feed(
    stream: Stream,
    items: "SimpleQueue[Item]",
    permits: "SimpleQueue[bool | None]",
    stopped: list[bool],
    size: BlockSize,
    clock: Callable[[], float],
) -> None:
    first = True
    while permits.get() and not stopped:
        began = clock()
        item: Item
        try:
            item = stream.pull(size.size)
        except BaseException as error:  # Whatever it is, it belongs to the one who listens.
            item = error
        if isinstance(item, Chunk):
            size.learn(max(size.size, len(item.block)), clock() - began)
            if len(item.block) and size.wants_sample():
                size.limit_bytes(item.block.part(0, 1).rows()[0])
        if first:
            # The first pull may have loaded, or started, what ends with the program as well.
            first = False
            go_first()
        items.put(item)
        if not isinstance(item, Chunk):
            return
        del item  # Not while waiting for room.
    # There is no consumer any more, unless the program ends: then it may be another thread like
    # this one.
    items.put(ClosedError("this iterator was used while the program ended."))


class BackgroundStream(Stream):
    """Hands out chunks that a thread pulled ahead; states are those of the elements handed out."""

    def __init__(
        self,
        input: Stream,
        buffer: BufferBounds,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._input = input
        self._buffer = buffer
        # The thread could prefetch. But a consumer that takes more than it needs keeps ready
        # elements from being handed out, and the input may be waiting for just these.
        self.eager = input.eager
        self._clock = clock
        self._feeder: _Feeder | None = None
        self._finalizer: weakref.finalize[..., BackgroundStream] | None = None
        self._place: tuple[Marks, int] = (beginning_of(input), 0)
        self._ended = False

    def pull(self, want: int) -> Chunk | None:
        if not self._buffer.most:
            return self._input.pull(want)
        if self._ended:
            return None
        self.start()
        assert self._feeder is not None
        item = self._feeder.take()
        if isinstance(item, Chunk):
            count = len(item.block) + (item.block.failure is not None)
            if count:  # A chunk without elements (a filter dropped all) is skipped.
                self._place = (item.marks, count)
            return item
        self._stop(wait=True)
        if item is None:
            self._ended = True
            return None
        # The thread is gone; the next pull starts another one from where this one stopped.
        with suppress(StateError):  # A user's iterator may have no state.
            self._input.restore(self.state())
        raise item

    def describe(self) -> str:
        """The most that waits in the buffer, in words."""
        feeder = self._feeder
        chunks = _CHUNKS if feeder is None else feeder.chunks
        return f"a thread of thread_prefetch({self._buffer}): {chunks} blocks ahead"

    def state(self) -> State:
        if not self._buffer.most:
            return self._input.state()
        marks, used = self._place
        return marks.at(used)

    def restore(self, state: State) -> None:
        self._stop(wait=True)
        self._input.restore(state)
        self._place, self._ended = (FixedMarks(state), 0), False

    def fields(self) -> Fields:
        return self._input.fields()

    def most_before(self, state: State | None) -> int | None:
        return self._input.most_before(state)

    def state_for(self, index: int) -> State:
        return self._input.state_for(index)

    def index_in(self, state: State) -> int:
        return self._input.index_in(state)

    def start(self) -> None:
        if self._feeder is None and self._buffer.most and not self._ended:
            self._feeder = _Feeder(self._input, self._buffer, self._clock)
            self._finalizer = weakref.finalize(self, self._feeder.stop, False)
            self._feeder.start()

    def close(self) -> None:
        self._stop(wait=True)
        self._input.close()

    def _stop(self, wait: bool) -> None:
        if self._feeder is not None:
            self._feeder.stop(wait)
            # Not earlier: as long as the thread runs, no other code may touch the stream.
            self._feeder = None
            if self._finalizer is not None:
                self._finalizer.detach()
