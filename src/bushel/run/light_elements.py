"""Decides whether elements are cheap enough to read many streams together in one thread."""

import numpy as np

from bushel.core.positions import Keys, distinct

# What reading a stream by itself costs, roughly. Elements that take longer are read like that:
# then it matters less than whether they have threads. Now and then a part takes longer (a file is
# opened, an order computed), to begin with and when it has given many light elements; and it is
# only after a while that it is sure.
_LIGHT_SECONDS = 20e-6
_SECONDS_NOW_AND_THEN = 2e-3
_CALL_SECONDS = 500e-6
_SURE_SECONDS = 0.05
# One call, however long it took, is not enough to be sure: the process may have been stopped.
_MOST_OF_A_CALL_SECONDS = 0.6 * _SURE_SECONDS


class LightElements:
    """Learns by times that are handed in.

    >>> light = LightElements(parts=1)
    >>> for _ in range(2):
    ...     light.given(count=10, seconds=60.0)
    ...     print(light.are_light)
    True
    False
    """

    def __init__(self, parts: int) -> None:
        # The seconds that elements took beyond what light ones take; below 0, what they may take.
        self._excess = 0.0
        self._most_credit = _SECONDS_NOW_AND_THEN * parts
        self._touched = np.zeros(parts, dtype=bool)

    @property
    def are_light(self) -> bool:
        """Whether they are, as far as is known."""
        return self._excess <= _SURE_SECONDS

    def learn(self, which: Keys, count: int, seconds: float) -> None:
        """Takes note of how long `count` elements of these parts took."""
        beyond = seconds - _CALL_SECONDS - count * _LIGHT_SECONDS
        new = which[~self._touched.take(which)]
        if len(new):
            self._touched[new] = True
            beyond -= len(distinct(new)) * _SECONDS_NOW_AND_THEN
        self._count(beyond)

    def given(self, count: int, seconds: float) -> None:
        """The same for elements that somebody else made, with others."""
        self._count(seconds - count * _LIGHT_SECONDS)

    def _count(self, seconds: float) -> None:
        spare = max(0.0, -self._excess)
        seconds = min(seconds, spare + _MOST_OF_A_CALL_SECONDS)
        self._excess = max(-self._most_credit, self._excess + seconds)
