"""Makes a worker keep the memory of freed arrays, for arrays of the same sizes.

glibc gives the memory of large arrays back to the system when they die, and gets it again, page
by page, for the next ones: a tenth of the time of decoding images.
"""

import ctypes
import os
from contextlib import suppress

# Variables that a process is started with; what glibc's `mallopt` calls the same; and the bytes.
_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": (-3, 1 << 25),
    "MALLOC_TRIM_THRESHOLD_": (-1, 1 << 28),
}


def variables() -> dict[str, str]:
    """What a process that is about to be started is told."""
    return {variable: str(value) for variable, (_, value) in _SETTINGS.items()}


def keep_memory() -> None:
    """Tells the same to this process, which is there already; other C libraries do as they do."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for variable, (name, value) in _SETTINGS.items():
            if variable not in os.environ:
                mallopt(name, value)
