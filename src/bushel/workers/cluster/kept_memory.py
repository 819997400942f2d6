"""Memory of a process that makes arrays of the same sizes all the time: it keeps what it has.

Local workers are started so (see `launch`); a process of Ray's is there already, and is told.
"""

import ctypes
import os
from contextlib import suppress

# Names of glibc's for `mallopt`, and the variables that say the same when a process starts.
_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": (-3, 1 << 25),
    "MALLOC_TRIM_THRESHOLD_": (-1, 1 << 28),
}


def keep_memory() -> None:
    """Has glibc keep the memory of arrays that died, for the next ones; others do as they do."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for variable, (name, value) in _SETTINGS.items():
            if variable not in os.environ:
                mallopt(name, value)
