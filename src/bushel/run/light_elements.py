"""Decides whether elements are cheap enough to read many streams together in one thread."""

import numpy as np

from bushel.core.positions import Keys, distinct

# Roughly the cost of reading a stream by itself. Elements that take longer are read by themselves:
# then this cost matters less than whether they have threads. Now and then a part takes longer (a
# file is opened, an order computed), at first and after it has given many light elements; so the
# decision is only final after a while.
_LIGHT_SECONDS = 20e-6
_SECONDS_NOW_AND_THEN = 2e-3
_CALL_SECONDS = 500e-6
_SURE_SECONDS = 0.05
# One call, however long it took, is not enough evidence: the process may have been stopped.
_MOST_OF_A_CALL_SECONDS = 0.6 * _SURE_SECONDS


class LightElements:
    """Learns from times that the caller measures.

    >>> light = LightElements(parts=1)
    >>> for _ in range(2):
    ...     light.given(count=10, seconds=60.0)
    ...     print(light.are_light)
    True
    False
    """

    def __init__(self, parts: int) -> None:
        # Seconds that elements took beyond those of light ones; below 0, seconds in reserve.
        self._excess = 0.0
        self._most_credit = _SECONDS_NOW_AND_THEN * parts
        self._touched = np.zeros(parts, dtype=bool)

    @property
    def are_light(self) -> bool:
        """Whether elements are light, as far as is known."""
        return self._excess <= _SURE_SECONDS

    def learn(self, which: Keys, count: int, seconds: float) -> None:
        """Takes note of the time that `count` elements of these parts took."""
        beyond = seconds - _CALL_SECONDS - count * _LIGHT_SECONDS
        new = which[~self._touched.take(which)]
        if len(new):
            self._touched[new] = True
            beyond -= len(distinct(new)) * _SECONDS_NOW_AND_THEN
        self._count(beyond)

    def given(self, count: int, seconds: float) -> None:
        """The same for elements that were made elsewhere, together with those of other parts."""
        self._count(seconds - count * _LIGHT_SECONDS)

    def _count(self, seconds: float) -> None:
        spare = max(0.0, -self._excess)
        seconds = min(seconds, spare + _MOST_OF_A_CALL_SECONDS)
        self._excess = max(-self._most_credit, self._excess + seconds)
