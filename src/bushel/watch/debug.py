"""Grain's debug mode: iterators that log their statistics about every minute."""

import logging
from time import perf_counter
from typing import Any

from bushel.deliver.iterator import T
from bushel.deliver.timed import TimedIterator
from bushel.watch.telling import tell

_log = logging.getLogger("bushel")

# As often as Grain does.
_SECONDS_BETWEEN = 60.0


class LoggingIterator(TimedIterator[T]):
    """Logs its statistics about every minute, and when it ends or is closed.

    It has no thread: `next` reads the clock whenever more elements are to be made. So nothing is
    logged while a loop waits.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tell_after = perf_counter() + _SECONDS_BETWEEN
        # The number of elements delivered at the last log message.
        self._told = 0

    def _refill(self, *args: Any) -> bool:
        # Before there are elements, as an interrupt must not come between them and the loop.
        now = perf_counter()
        if now >= self._tell_after:
            self._tell_after = now + _SECONDS_BETWEEN
            self._tell()
        if super()._refill(*args):
            return True
        self._tell()
        return False

    def close(self) -> None:
        self._tell()
        super().close()

    def _tell(self) -> None:
        try:
            stats = self.stats()
            if stats.elements != self._told:
                self._told = stats.elements
                tell(f"what an iterator has done so far:\n\n{stats}")
        except Exception as error:
            # It is only a help, and no reason to end a training.
            _log.warning("the statistics of an iterator cannot be told: %r", error)
