"""A thread that samples whether the interpreter's lock (the GIL) is held.

The thread does nothing but sleep for a moment, now and then, and needs the lock again when it wakes
up. If the lock is free, it has it at once; if not, it waits, and so gives up its core once more
than for sleeping. The system counts how often it does. Nothing is timed, so other programs on the
machine make no difference: the work holds the lock, or does not, whether it is on a core or in the
queue for one.
"""

import resource
import threading
import time
import weakref

from bushel.core.ending import OwnThread, end_with_program

# Not every system counts per thread.
_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)

# The least pause between two samples; it is up to twice as long, so as not to keep step with the
# work.
_PAUSE_SECONDS = 0.002
_GOLDEN = 0.6180339887
# The thread ends by itself if there is nothing to see.
_MOST_PAUSES = 2000


class LockProbe:
    """Samples whether the lock is taken, whenever the caller is `working`."""

    def __init__(self) -> None:
        self.working = False
        self.looks = self.taken = 0
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is not None or _THREAD is None:
            return
        self._thread = OwnThread(_look_on, "bushel-lock", (weakref.ref(self),))
        end_with_program(self)
        self._thread.start()

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """The thread that samples, if there is one."""
        return () if self._thread is None else (self._thread,)

    def end_soon(self) -> None:
        """Ends the thread, at the end of the program."""
        self._stopped = True

    def look(self, taken: bool, at: float = 0.0) -> bool:
        """Takes one sample, at a time of `time.perf_counter`; returns whether to go on."""
        if self.working and not self._stopped:
            self.looks += 1
            self.taken += taken
        return not self._stopped

    def stop(self, wait: bool = False) -> None:
        """Ends the thread, and waits for that if `wait`, which takes a few milliseconds."""
        self._stopped = True
        if wait and self._thread is not None and self._thread.is_alive():
            self._thread.join()


def _look_on(whose: "weakref.ref[LockProbe]") -> None:
    assert _THREAD is not None
    late = 0.0
    for number in range(_MOST_PAUSES):
        before, began = resource.getrusage(_THREAD).ru_nvcsw, time.perf_counter()
        # A thread that had to give up the lock may be in the queue for a core for a while before it
        # has the lock again. That takes as long as it took this thread.
        pause = late + _PAUSE_SECONDS * (1 + number * _GOLDEN % 1)
        time.sleep(pause)
        waits = resource.getrusage(_THREAD).ru_nvcsw - before
        late = max(0.0, time.perf_counter() - began - pause)
        probe = whose()
        if probe is None or not probe.look(waits > 1, began + pause):
            return
        del probe  # Not while sleeping, so that the thread ends with the probe's last user.
