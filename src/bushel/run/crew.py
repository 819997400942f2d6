"""Threads that streams share which are read side by side, as the lanes of a host are."""

from bushel.options import ReadOptions
from bushel.plan.lanes import LaneReadOptions
from bushel.run.threads import Evaluate, Pool, ReadAhead
from bushel.run.tune import ThreadChoice


class Crew:
    """Decides for a number of streams whether they have threads, and has those threads.

    One of many streams has too little to do to find out by itself whether threads pay, and
    threads of its own would be too many.
    """

    def __init__(self, read_options: ReadOptions, cores: int, streams: int = 1) -> None:
        self._streams = streams
        buffer_size = read_options.prefetch_buffer_size
        # Of each stream.
        self._buffer_size = max(1, buffer_size // streams) if buffer_size else 0
        threads = min(read_options.num_threads, buffer_size)
        self.choice = ThreadChoice(threads, cores, streams)
        self._pool: Pool | None = None
        # Deliveries are looked at so many at a time as there are streams, since what their
        # caller does between two rounds is to be seen in each.
        self._began: float | None = None
        self._was_threaded = False
        self._deliveries = self._elements = 0

    def delivered(self, count: int, now: float) -> None:
        """Takes note that some stream handed out so many elements."""
        if self._began is None or self.choice.threaded != self._was_threaded:
            self._begin(now)
            return
        self._deliveries += 1
        self._elements += count
        if self._deliveries >= self._streams:
            self.choice.learn_cycle(self._elements, now - self._began)
            self._begin(now)

    def _begin(self, now: float) -> None:
        self._began, self._was_threaded = now, self.choice.threaded
        self._deliveries = self._elements = 0

    def read_ahead(
        self, evaluate: Evaluate, first_size: int, start: int, stop: int, least: int = 1
    ) -> ReadAhead:
        """Has threads evaluate the positions of one of the streams."""
        threads = self.choice.threads
        if self._pool is None or self._pool.stopped:
            self._pool = Pool(threads)
        share = max(1, threads // self._streams)
        return ReadAhead(
            evaluate, share, self._buffer_size, first_size, start, stop, self._pool, least
        )

    def wait(self) -> None:
        """Waits for threads that nobody uses any more."""
        if self._pool is not None and self._pool.stopped:
            self._pool.wait()


def crew_for(read_options: ReadOptions, cores: int) -> Crew:
    """The crew that a stream belongs to: one of its own, unless it is a lane."""
    if not isinstance(read_options, LaneReadOptions):
        return Crew(read_options, cores)
    if not read_options.crew:
        read_options.crew.append(Crew(read_options, cores, read_options.lanes))
    crew: Crew = read_options.crew[0]
    return crew
