"""Detects that the work, or who else uses the cores, is not as when threads were chosen."""

import math
from typing import NamedTuple

from bushel.run.recent_times import SeenLately

# The change in the share of time spent in the queue for a core that means that other programs have
# come or gone.
_OTHER_CROWD = 0.25
# Work that takes twice as long, or half as long, counts as other work.
CHANGED = 2.0
# Blocks that differ more than this are of both kinds: the work has changed among them.
_MOST_UNLIKE = 4.0


class Sight(NamedTuple):
    """The measurements of the work at one time."""

    # Seconds per element, and CPU seconds per element.
    work: float
    cpu: float
    # The share of the time in which other programs had the cores.
    crowd: float
    # The relative variance of blocks, and the number of blocks measured.
    unlike: float
    blocks: int

    @classmethod
    def of(cls, seen: SeenLately, unlike_for_long: float = 0.0) -> "Sight":
        work, cpu = seen.mean()
        return cls(work, cpu, seen.crowd, max(seen.unlike, unlike_for_long), seen.remembered)

    def is_other_work(self, now: "Sight") -> bool:
        little = 0.05 * self.work
        # The mean of elements that differ from one another varies from time to time.
        unlike = min(max(self.unlike, now.unlike), _MOST_UNLIKE)
        # (Of few the mean is further off than their number alone says.)
        blocks = max(1, now.blocks)
        changed = CHANGED * math.exp((2 + 3 / blocks) * math.sqrt(unlike / blocks))
        return any(
            max(before, after) > changed * max(min(before, after), little)
            for before, after in ((self.work, now.work), (self.cpu, now.cpu))
        )

    def is_other_crowd(self, now: "Sight") -> bool:
        # Work that waits is neither faster nor slower beside other programs.
        return now.cpu > 0.5 * now.work and abs(now.crowd - self.crowd) > _OTHER_CROWD


# Work that lasts for less than so long, or for fewer blocks than that, before other work comes, is
# not worth another choice: it alternates. If it does, it is let be for so many times that, and for
# twice as long each time.
_LASTS_SECONDS, _LASTS_BLOCKS = 1.0, 40
_LONGEST_CALM = 32.0


class Alternation:
    """Detects work that changes all the time, which is the same work all the time.

    >>> alternation = Alternation()
    >>> alternation.may_change, alternation.changed()  # At once: this once.
    (True, None)
    >>> alternation.went_on(blocks=30, seconds=0.5)
    >>> alternation.may_change
    False
    """

    def __init__(self) -> None:
        self._blocks, self._seconds = 0, 0.0
        self._calm = 0.0

    def went_on(self, blocks: int = 0, seconds: float = 0.0) -> None:
        """Takes note of what was seen of the work."""
        self._blocks += blocks
        self._seconds += seconds

    @property
    def _lasted(self) -> float:
        return min(self._blocks / _LASTS_BLOCKS, self._seconds / _LASTS_SECONDS)

    @property
    def may_change(self) -> bool:
        """Whether what looks like other work is a reason to choose again."""
        return self._lasted >= self._calm

    def changed(self) -> None:
        """Takes note that there was a new choice for other work."""
        if self._lasted < max(1.0, 2 * self._calm):
            self._calm = min(max(1.0, 2 * self._calm), _LONGEST_CALM)
        else:
            self._calm = 0.0
        self._blocks, self._seconds = 0, 0.0
