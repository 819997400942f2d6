"""Threads that several streams share, such as the lanes of a host."""

import weakref
from collections.abc import Callable

from bushel.core.block import Block
from bushel.core.options import ReadOptions, SharedReadOptions
from bushel.run.lock_probe import LockProbe
from bushel.run.thread_choice import ThreadChoice
from bushel.run.threads import Evaluate, ReadAhead, ThreadPool


class SharedThreads:
    """Decides for a number of streams whether they have threads, and has those threads.

    One of many streams has too little to do to find out by itself whether threads pay, and
    threads of its own would be too many.
    """

    def __init__(self, read_options: ReadOptions, cores: float, streams: int = 1) -> None:
        self._streams = streams
        buffer_size = read_options.prefetch_buffer_size
        # Limits of each stream.
        self._buffer_size = max(1, buffer_size // streams) if buffer_size else 0
        threads = min(read_options.num_threads, buffer_size)
        self.choice = ThreadChoice(threads, cores, streams)
        self._pool: ThreadPool | None = None
        # Looks at the interpreter's lock while somebody wants to know; and the last one that did.
        self.probe: LockProbe | None = None
        self._last_probe: LockProbe | None = None
        self._began: float | None = None
        self._was_threaded = False
        # Since the last delivery nobody has asked for anything: the time is the user's.
        self._left: float | None = None
        # None where there was no user in it: before the first one is delivered.
        self._user_seconds: float | None = None

    def asked(self, now: float) -> None:
        """Takes note that the user comes for more."""
        if self._began is None:
            self._begin(now)
        if self._left is None:
            return
        self._user_seconds = now - self._left
        self._left = None

    def delivered(self, count: int, now: float, made_in_between: float = 0.0) -> None:
        """Takes note that some stream handed out `count` elements.

        `made_in_between` are seconds that seem to be the user's, and in which elements were made.
        """
        self._left = now
        choice, began, user_seconds = self.choice, self._began, self._user_seconds
        if began is not None and choice.threaded == self._was_threaded:
            if user_seconds is not None:
                user_seconds = max(0.0, user_seconds - made_in_between)
            if self.probe is None:
                choice.learn_cycle(count, now - began, user_seconds)
            else:
                looks, taken = self.probe.looks, self.probe.taken
                choice.learn_lock(looks, taken, count, now - began, user_seconds)
        if choice.looking != (self.probe is not None):
            self._look_or_not()
        self._begin(now)

    def evaluate(self, evaluate: Evaluate, start: int, count: int) -> Block:
        """Evaluates a block inline."""
        probe = self.probe
        if probe is None:
            return evaluate(start, count)
        probe.working = True
        try:
            return evaluate(start, count)
        finally:
            probe.working = False

    def _look_or_not(self) -> None:
        if self.probe is None:
            self.probe = LockProbe()
            self.probe.start()
        else:
            self.probe.stop()
            self._last_probe, self.probe = self.probe, None

    def left_over(self) -> None:
        """Takes note that what is handed out now was made by threads that are no longer used.

        It comes at once, which is no sign of how soon elements come without them.
        """
        self._was_threaded = True

    def interrupted(self) -> None:
        """Takes note that what comes next does not follow what came last."""
        self._left = self._began = None

    def _begin(self, now: float) -> None:
        self._began, self._was_threaded = now, self.choice.threaded
        self._user_seconds = None

    def read_ahead(
        self,
        evaluate: Evaluate,
        first_size: int,
        start: int,
        stop: int,
        least: int = 1,
        together: int = 0,
    ) -> ReadAhead:
        """Has threads evaluate the positions of one of the streams.

        So many elements are needed `together`: beside its buffer, a single stream has room for
        those that are asked for and for as many that are asked for next.
        """
        pool = self.pool()
        share = max(1, len(pool.threads) // self._streams)
        if self._streams > 1:
            together = 0
        room = self._buffer_size + 2 * together
        return ReadAhead(
            evaluate, share, room, first_size, start, stop, pool, least, self.choice, together
        )

    def pool(self) -> ThreadPool:
        """The threads, as many as there should be now."""
        threads = self.choice.threads
        if self._pool is None or self._pool.stopped or len(self._pool.threads) != threads:
            self._pool = ThreadPool(threads)
        return self._pool

    def wait(self) -> None:
        """Waits for threads that nobody uses any more."""
        if self._pool is not None and self._pool.stopped:
            self._pool.wait()
        for probe in (self.probe, self._last_probe):
            if probe is not None:
                probe.stop(wait=True)
        self.probe = self._last_probe = None


class Seat:
    """A place at shared threads, which stay while it is taken.

    A stream that is read piece by piece (by a worker, task by task) would otherwise begin with
    new threads each time.
    """

    def __init__(self) -> None:
        self._pool: ThreadPool | None = None
        self._token: object = None
        self._finalizer: weakref.finalize[..., Seat] | None = None

    def take(self, pool: ThreadPool) -> None:
        """Sits down here, and no longer elsewhere."""
        if pool is self._pool:
            return
        self.leave()
        token = object()
        pool.enter(token)
        finalizer = weakref.finalize(self, pool.leave, token)
        finalizer.atexit = False
        self._pool, self._token, self._finalizer = pool, token, finalizer

    def leave(self) -> None:
        """Lets the threads go, if nobody else uses them."""
        if self._pool is None or self._finalizer is None:
            return
        self._pool.leave(self._token)
        # Last: after an interrupt, the next one to call this leaves once more.
        self._finalizer.detach()
        self._pool = None


class ThreadsOfStreams:
    """The threads of each stream of a pipeline; those with the same options share theirs."""

    def __init__(self) -> None:
        # By the `id` of the options, which are kept beside it.
        self._shared: dict[int, tuple[SharedReadOptions, SharedThreads]] = {}

    def of(self, read_options: ReadOptions, cores: Callable[[], float]) -> SharedThreads:
        """The threads that a stream has, perhaps with others.

        The cores are counted once for all of those, since that takes longer than to make a stream.
        """
        if not isinstance(read_options, SharedReadOptions):
            return SharedThreads(read_options, cores() if read_options.num_threads else 1)
        if id(read_options) not in self._shared:
            made = SharedThreads(read_options, cores(), read_options.streams)
            self._shared[id(read_options)] = read_options, made
        return self._shared[id(read_options)][1]


# Fewer streams than that, which are read side by side, each decide for themselves whether they
# have threads; of more, one decision is made for all, and they have as many as these would.
_FEW_STREAMS = 4


class PartsInTurn:
    """Makes the options of many streams that are read side by side, as parts of a mixture."""

    def __init__(self, streams: int) -> None:
        self._streams = streams
        self._shared: dict[tuple[int, int], SharedReadOptions] = {}

    def of(self, options: ReadOptions) -> ReadOptions:
        """What one of the streams has in the place of options of its own."""
        if self._streams <= _FEW_STREAMS or isinstance(options, SharedReadOptions):
            return options
        key = options.num_threads, options.prefetch_buffer_size
        if key not in self._shared:
            theirs = ReadOptions(*(_FEW_STREAMS * number for number in key))
            self._shared[key] = SharedReadOptions(theirs, self._streams, 1)
        return self._shared[key]


class ThreadsInTurn:
    """The threads of streams that are opened one by one, and read in turn."""

    def __init__(self, streams: int) -> None:
        self.threads, self.parts = ThreadsOfStreams(), PartsInTurn(streams)
