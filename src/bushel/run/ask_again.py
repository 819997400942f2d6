"""When threads are first tried, and when again: later after each trial that they lost."""

import math

# The time that work should have run inline before the lock is sampled. Sampling takes a thread and
# a few switches of the interpreter: work that keeps a core busy should have run for a hundred times
# that. Light elements cost a tenth more meanwhile, since they cannot be made on demand, so they
# should have run for longer. So should work beside other programs: little of it is done in a short
# time, and its beginning takes longer. Work that waits is tried soon.
_PATIENCE_SECONDS, _MOST_PATIENCE_SECONDS = 0.03, 0.15
_CROWD = 0.25
_PATIENCE_WITH_WAITING_SECONDS = 0.02
_LIGHT_SECONDS = 2e-6
# Changed work is noticed only after a while, and after a longer while for each trial in vain: light
# work is never twice the same.
_CALM_SECONDS = 0.25
_LAST_CALM_SECONDS = 30.0
# The pause after a trial that failed. A trial costs about a block of each thread: this many blocks
# later another one costs little.
SOON_AGAIN_SECONDS = 2.0
_LAST_RETRY_SECONDS = 300.0
_RETRY_BLOCKS = 40
# Beyond this loss, the pause after a trial does not grow any further.
_MOST_LOST = math.log(32)
# Sampling the lock costs next to nothing, and work that takes as long as before may no longer hold
# the lock.
_LOOK_AGAIN_SECONDS, _LOOK_AGAIN_BLOCKS = 20.0, 4


def patience_with(work: float, waits: bool, crowd: float) -> float:
    """The seconds that work should have run before it is disturbed.

    It depends on the time of an element, and on the share of its time in the queue for a core.

    >>> [round(patience_with(work, waits=False, crowd=0.0), 3) for work in (1e-7, 1e-5, 1e-3)]
    [0.15, 0.054, 0.03]
    """
    if waits:
        return _PATIENCE_WITH_WAITING_SECONDS
    more = min(1.0, max(_LIGHT_SECONDS / max(work, 1e-9), crowd / _CROWD))
    return _PATIENCE_SECONDS + more * (_MOST_PATIENCE_SECONDS - _PATIENCE_SECONDS)


def in_a_crowd(crowd: float) -> bool:
    """Whether other programs use the cores so much that a first measurement deceives."""
    return crowd > 0.5 * _CROWD


class AskAgain:
    """How long threads that did not pay are not tried again.

    >>> again = AskAgain()
    >>> for _ in range(3):
    ...     again.after_a_trial(block_seconds=0.01, lost=0.0)
    ...     print(again.retry_seconds)
    4.0
    8.0
    16.0
    """

    def __init__(self) -> None:
        # Seconds until threads are tried again; seconds until changed work is a reason to.
        self.retry_seconds, self.calm_seconds = SOON_AGAIN_SECONDS, _CALM_SECONDS

    def after_a_trial(self, block_seconds: float, lost: float) -> None:
        """Takes note of a trial in vain.

        `lost` is how much slower threads were, at least, as a logarithm.
        """
        later = 2 * self.retry_seconds * math.exp(min(lost, _MOST_LOST))
        self.retry_seconds = max(min(later, _LAST_RETRY_SECONDS), _RETRY_BLOCKS * block_seconds)
        self._be_calm()

    def after_a_look(self, block_seconds: float) -> None:
        """Takes note that samples of the lock were enough to show that threads would not pay."""
        later = min(2 * self.retry_seconds, max(self.retry_seconds, _LOOK_AGAIN_SECONDS))
        self.retry_seconds = max(later, _LOOK_AGAIN_BLOCKS * block_seconds)
        self._be_calm()

    def keep(self) -> None:
        """Takes note that threads pay."""
        self.calm_seconds = _CALM_SECONDS

    def _be_calm(self) -> None:
        self.calm_seconds = min(2 * self.calm_seconds, _LAST_CALM_SECONDS)
