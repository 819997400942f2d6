"""A stream pulled by a thread of its own, into a bounded buffer."""

import queue
import threading
import time
import weakref
from collections.abc import Callable

from bushel.run.stream import Chunk, FixedMarks, Marks, State, Stream
from bushel.run.tune import BlockSize

# What the thread puts at the end of the stream.
_END = None


class _Feeder:
    """The thread, its buffer and its stop sign; knows the stream it pulls, not who listens."""

    def __init__(self, stream: Stream, buffer_size: int, clock: Callable[[], float]) -> None:
        # Two chunks of half the buffer: one being handed out, one being made.
        self.buffer: queue.Queue[Chunk | BaseException | None] = queue.Queue(2)
        self.stopped = threading.Event()
        most = max(1, buffer_size // 2) if stream.eager else 1
        self.thread = threading.Thread(
            target=_feed,
            args=(stream, self.buffer, self.stopped, most, clock),
            name="bushel-prefetch",
            daemon=True,
        )
        self.thread.start()

    def stop(self, wait: bool) -> None:
        self.stopped.set()
        while True:  # Room in the buffer wakes a thread that waits for it.
            try:
                self.buffer.get_nowait()
            except queue.Empty:
                break
        if wait and self.thread is not threading.current_thread():
            self.thread.join()


def _feed(
    stream: Stream,
    buffer: "queue.Queue[Chunk | BaseException | None]",
    stopped: threading.Event,
    most: int,
    clock: Callable[[], float],
) -> None:
    size = BlockSize(most)
    item: Chunk | BaseException | None = _END
    while not stopped.is_set():
        began = clock()
        try:
            item = stream.pull(size.size)
        except BaseException as error:  # Whatever it is, it belongs to the one who listens.
            item = error
        if isinstance(item, Chunk):
            size.learn(len(item.block), clock() - began)
            if len(item.block):
                size.limit_bytes(item.block.part(0, 1).rows()[0])
        buffer.put(item)
        if not isinstance(item, Chunk):
            return


class BackgroundStream(Stream):
    """Hands out what a thread pulled ahead; states are those of the elements handed out."""

    def __init__(
        self,
        input: Stream,
        buffer_size: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._input = input
        self._buffer_size = buffer_size
        self._clock = clock
        self._feeder: _Feeder | None = None
        self._finalizer: weakref.finalize[..., BackgroundStream] | None = None
        self._place: tuple[Marks, int] = (FixedMarks(input.state()), 0)
        self._ended = False

    def pull(self, want: int) -> Chunk | None:
        if not self._buffer_size:
            return self._input.pull(want)
        if self._ended:
            return None
        self.start()
        assert self._feeder is not None
        item = self._feeder.buffer.get()
        if isinstance(item, Chunk):
            self._place = (item.marks, len(item.block) + (item.block.failure is not None))
            return item
        state = self.state()
        self._stop(wait=True)
        if item is None:
            self._ended = True
            return None
        # The thread is gone; the next pull starts another one from where this one was.
        self._input.restore(state)
        raise item

    def state(self) -> State:
        if not self._buffer_size:
            return self._input.state()
        marks, used = self._place
        return marks.at(used)

    def restore(self, state: State) -> None:
        self._stop(wait=True)
        self._input.restore(state)
        self._place, self._ended = (FixedMarks(state), 0), False

    def state_for(self, index: int) -> State:
        return self._input.state_for(index)

    def index_in(self, state: State) -> int:
        return self._input.index_in(state)

    def start(self) -> None:
        if self._feeder is None and self._buffer_size and not self._ended:
            self._feeder = _Feeder(self._input, self._buffer_size, self._clock)
            self._finalizer = weakref.finalize(self, self._feeder.stop, False)

    def close(self) -> None:
        self._stop(wait=True)
        self._input.close()

    def _stop(self, wait: bool) -> None:
        feeder, self._feeder = self._feeder, None
        if feeder is not None:
            if self._finalizer is not None:
                self._finalizer.detach()
            feeder.stop(wait)
