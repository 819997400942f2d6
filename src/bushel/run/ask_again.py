"""When threads are first tried, and when again: later after each trial that they lost."""

import math

# To look at the lock costs a thread and a few of the interpreter's switches: work that keeps a core
# busy should have run for a hundred times that. Elements this light cost a tenth more meanwhile,
# since they cannot be made one by one, and should have run for longer. So should work beside others
# that have the cores: in a short time little of it is done, and the first of it takes longer. Work
# that waits is tried.
_PATIENCE_SECONDS, _MOST_PATIENCE_SECONDS = 0.03, 0.15
_CROWD = 0.25
_PATIENCE_WITH_WAITING_SECONDS = 0.02
_LIGHT_SECONDS = 2e-6
# Other work is looked at only after a while, and a longer while after each trial in vain: light
# work is never twice the same.
_CALM_SECONDS = 0.25
_LAST_CALM_SECONDS = 30.0
# After a trial that failed. It cost about a block of each thread: so many blocks later another
# one costs little.
SOON_AGAIN_SECONDS = 2.0
_LAST_RETRY_SECONDS = 300.0
_RETRY_BLOCKS = 40
# A trial that was lost more clearly than this is not repeated for longer still.
_MOST_LOST = math.log(32)
# A look at the lock costs next to nothing: work that takes as long as before may hold it no longer.
_LOOK_AGAIN_SECONDS, _LOOK_AGAIN_BLOCKS = 20.0, 4


def patience_with(work: float, waits: bool, crowd: float) -> float:
    """The seconds that work should have run before it is disturbed.

    By what an element takes, and by the share of its time in the queue for a core.

    >>> [round(patience_with(work, waits=False, crowd=0.0), 3) for work in (1e-7, 1e-5, 1e-3)]
    [0.15, 0.054, 0.03]
    """
    if waits:
        return _PATIENCE_WITH_WAITING_SECONDS
    more = min(1.0, max(_LIGHT_SECONDS / max(work, 1e-9), crowd / _CROWD))
    return _PATIENCE_SECONDS + more * (_MOST_PATIENCE_SECONDS - _PATIENCE_SECONDS)


def in_a_crowd(crowd: float) -> bool:
    """Whether others have the cores so much of the time that a first impression deceives."""
    return crowd > 0.5 * _CROWD


class AskAgain:
    """How long threads are let be that did not pay.

    >>> again = AskAgain()
    >>> for _ in range(3):
    ...     again.after_a_trial(block_seconds=0.01, lost=0.0)
    ...     print(again.retry_seconds)
    4.0
    8.0
    16.0
    """

    def __init__(self) -> None:
        # Until they are tried again; until work that has changed is a reason to.
        self.retry_seconds, self.calm_seconds = SOON_AGAIN_SECONDS, _CALM_SECONDS

    def after_a_trial(self, block_seconds: float, lost: float) -> None:
        """Takes note of a trial in vain. Its cost is how much threads were slower.

        That is `lost`, as a logarithm and at the least.
        """
        later = 2 * self.retry_seconds * math.exp(min(lost, _MOST_LOST))
        self.retry_seconds = max(min(later, _LAST_RETRY_SECONDS), _RETRY_BLOCKS * block_seconds)
        self._be_calm()

    def after_a_look(self, block_seconds: float) -> None:
        """Takes note that a look at the lock was enough to know that they would not pay."""
        later = min(2 * self.retry_seconds, max(self.retry_seconds, _LOOK_AGAIN_SECONDS))
        self.retry_seconds = max(later, _LOOK_AGAIN_BLOCKS * block_seconds)
        self._be_calm()

    def keep(self) -> None:
        """Takes note that threads pay."""
        self.calm_seconds = _CALM_SECONDS

    def _be_calm(self) -> None:
        self.calm_seconds = min(2 * self.calm_seconds, _LAST_CALM_SECONDS)
