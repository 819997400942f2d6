"""The share of time in which the work holds the GIL, and when enough samples tell it."""

import math

# Numbers of samples: enough to see that the lock is mostly free, so that threads may be tried (the
# trial tells the rest); enough to know the share of time in which the work holds it; and, if that
# share matters and is not clear, the most. Then the seconds after which sampling ends, with any
# sample or with none.
_FIRST_LOOKS, _LOOKS, _MOST_LOOKS = 6, 16, 64
_LOOKING_SECONDS, _SEEING_NOTHING_SECONDS = 1.0, 0.1


class LockLooks:
    """How often the lock was sampled, and how often it was taken.

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
        """Takes note of all samples so far, and that sampling went on for `seconds` more."""
        self._looks, self._taken = looks, taken
        self._seconds += seconds

    @property
    def is_known(self) -> bool:
        """Whether the samples are enough for an estimate."""
        return self._looks >= _FIRST_LOOKS

    @property
    def may_be_enough(self) -> bool:
        """Whether there were so many samples, or so much time, that they may be enough."""
        return self.is_known or self._seconds >= _LOOKING_SECONDS

    def was_looked_at(self, clear: bool, promising: bool) -> bool:
        """Whether no more samples are needed.

        `clear`: they leave no doubt. `promising`: a trial is worth it even if they are far off.
        """
        enough = _FIRST_LOOKS if promising else _LOOKS if clear else _MOST_LOOKS
        return self._looks >= enough or self._seconds >= _LOOKING_SECONDS

    @property
    def shows_nothing(self) -> bool:
        """Whether there was no sample in all that time: this system does not allow any."""
        return not self._looks and self._seconds >= _SEEING_NOTHING_SECONDS

    def held(self, doubt: float) -> float:
        """The share of its time in which the work holds the lock.

        `doubt` is the assumed error of the samples, in units of the usual error: the share is
        reduced by it.
        """
        held = (self._taken + 0.5) / (self._looks + 1)
        return held - doubt * math.sqrt(held * (1 - held) / self._looks)
