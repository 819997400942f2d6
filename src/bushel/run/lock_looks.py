"""The share of time in which the work holds the GIL, from the samples of `LockProbe`."""

import math

# So many looks tell that it is mostly free, so that threads may be tried, which tells the rest; so
# many how much of its time the work holds it; where that makes a difference and is not clear, so
# many. And it is let be after so long, if there was any look or none.
_FIRST_LOOKS, _LOOKS, _MOST_LOOKS = 6, 16, 64
_LOOKING_SECONDS, _SEEING_NOTHING_SECONDS = 1.0, 0.1


class LockLooks:
    """How often somebody has looked at the lock, and how often it was taken.

    >>> lock = LockLooks()
    >>> lock.learn(looks=20, taken=10, seconds=0.1)
    >>> lock.is_known, lock.held(doubt=0.0)
    (True, 0.5)
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._looks = self._taken = 0
        self._seconds = 0.0

    def learn(self, looks: int, taken: int, seconds: float) -> None:
        """Takes note of all looks so far, and that somebody has looked for `seconds` more."""
        self._looks, self._taken = looks, taken
        self._seconds += seconds

    @property
    def is_known(self) -> bool:
        """Whether they are enough to go by."""
        return self._looks >= _FIRST_LOOKS

    @property
    def may_be_enough(self) -> bool:
        """Whether there were so many looks, or so long a time, that they may be enough."""
        return self.is_known or self._seconds >= _LOOKING_SECONDS

    def was_looked_at(self, clear: bool, promising: bool) -> bool:
        """Whether there need not be any more of them.

        They are `clear` if they leave no doubt, and `promising` if a trial is worth it even if they
        are much mistaken.
        """
        enough = _FIRST_LOOKS if promising else _LOOKS if clear else _MOST_LOOKS
        return self._looks >= enough or self._seconds >= _LOOKING_SECONDS

    @property
    def shows_nothing(self) -> bool:
        """Whether there were none in all that time: nobody can look at it here."""
        return not self._looks and self._seconds >= _SEEING_NOTHING_SECONDS

    def held(self, doubt: float) -> float:
        """The share of its time that work holds the lock.

        `doubt` is how many times as much as usual the looks may be mistaken: then it is less.
        """
        held = (self._taken + 0.5) / (self._looks + 1)
        return held - doubt * math.sqrt(held * (1 - held) / self._looks)
