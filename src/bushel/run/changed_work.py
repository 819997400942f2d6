"""Detects that the work has changed since the number of threads was chosen."""

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
    def of(cls, seen: SeenLately) -> "Sight":
        work, cpu = seen.mean()
        return cls(work, cpu, seen.crowd, seen.unlike, seen.remembered)

    def is_other_work(self, now: "Sight") -> bool:
        little = 0.05 * self.work
        # The mean of elements that differ from one another varies from time to time.
        unlike = min(max(self.unlike, now.unlike), _MOST_UNLIKE)
        changed = CHANGED * math.exp(2 * math.sqrt(unlike / max(1, now.blocks)))
        return any(
            max(before, after) > changed * max(min(before, after), little)
            for before, after in ((self.work, now.work), (self.cpu, now.cpu))
        )

    def is_other_crowd(self, now: "Sight") -> bool:
        # Work that waits is neither faster nor slower beside other programs.
        return now.cpu > 0.5 * now.work and abs(now.crowd - self.crowd) > _OTHER_CROWD
