"""How much time a program may spend on timing the first pulls of its iterators, all together.

The first turns of an iterator are timed more often than later ones, so that there is something to
tell soon. A program that makes many iterators, each of which ends soon, would be at that all the
time. So there is a limit for all of them together.
"""

from time import perf_counter_ns

# Nanoseconds that all iterators of a program may take for it, and how much comes again with time.
_MOST_NANOSECONDS, _COMES_AGAIN = 1_000_000, 0.0003


class LooksBeside:
    """What is left for such looks.

    >>> looks = LooksBeside(now=0)
    >>> looks.is_left(now=0), looks.took(1_400_000)
    (True, None)
    >>> looks.is_left(now=10**8), looks.is_left(now=2 * 10**9)
    (False, True)
    >>> looks.took(600_000), looks.is_left(now=2 * 10**9), looks.comes_at
    (None, False, 3333333334)
    """

    def __init__(self, now: int) -> None:
        self._left, self._at = float(_MOST_NANOSECONDS), now

    def is_left(self, now: int) -> bool:
        """Whether anything is left at a time."""
        more = _COMES_AGAIN * max(0, now - self._at)
        self._left, self._at = min(self._left + more, _MOST_NANOSECONDS), now
        return self._left > 0.0

    @property
    def comes_at(self) -> int:
        """When there is something left again, if nobody takes more before."""
        return self._at + 1 + int(max(0.0, -self._left) / _COMES_AGAIN)

    def took(self, nanoseconds: float) -> None:
        """Takes note of what was taken of it."""
        self._left -= nanoseconds


# That of this program.
looks_beside = LooksBeside(perf_counter_ns())
