"""Detects that the work has changed since the number of threads was chosen."""

import math
from typing import NamedTuple

from bushel.run.recent_times import SeenLately

# Others who have come, or gone, by so much of the time of the work.
_OTHER_CROWD = 0.25
# Work that takes twice as long, or half as long, is other work.
CHANGED = 2.0
# Blocks that are more unlike than that are of both kinds: the work has changed between them.
_MOST_UNLIKE = 4.0


class Sight(NamedTuple):
    """What was seen of the work."""

    # Seconds of an element, and those on a core.
    work: float
    cpu: float
    # How many others want the cores, as a share of the time.
    crowd: float
    # How unlike blocks are, and how many were seen.
    unlike: float
    blocks: int

    @classmethod
    def of(cls, seen: SeenLately) -> "Sight":
        work, cpu = seen.mean()
        return cls(work, cpu, seen.crowd, seen.unlike, seen.remembered)

    def is_other_work(self, now: "Sight") -> bool:
        little = 0.05 * self.work
        # Elements that are unlike one another have another mean each time.
        unlike = min(max(self.unlike, now.unlike), _MOST_UNLIKE)
        changed = CHANGED * math.exp(2 * math.sqrt(unlike / max(1, now.blocks)))
        return any(
            max(before, after) > changed * max(min(before, after), little)
            for before, after in ((self.work, now.work), (self.cpu, now.cpu))
        )

    def is_other_crowd(self, now: "Sight") -> bool:
        # Work that waits is no faster or slower for others.
        return now.cpu > 0.5 * now.work and abs(now.crowd - self.crowd) > _OTHER_CROWD
