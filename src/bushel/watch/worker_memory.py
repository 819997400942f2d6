"""For `profile` and `simulate`: measures the memory that worker processes have for themselves.

Pages that several of them have together, as forks do, are divided between them. What is shared with
this process, as the memory in which batches travel, is not counted.
"""

import os
from contextlib import suppress

from bushel.watch.other_programs import family

_OWN = "Pss_Anon:"


def bytes_of_workers() -> int:
    """Bytes of all processes that this one has started, and those; 0 where nobody tells."""
    return sum(map(_own_bytes, family(os.getpid()) - {os.getpid()}))


def _own_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith(_OWN):
                return int(line.split()[1]) * 1024
    return 0
