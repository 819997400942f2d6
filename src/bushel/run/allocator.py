"""Makes the C library keep freed memory in the process that evaluates blocks itself."""

from contextlib import suppress
from functools import cache

import numpy as np

# glibc raises its threshold to at most 32 MB, its own header included.
_LARGE_BYTES = (32 << 20) - (8 << 10)


@cache
def keep_freed_memory() -> None:
    """Makes glibc reuse large buffers rather than give each back to the system.

    At first, `malloc` asks the system for every buffer above 128 kB and returns it at once: a page
    fault for each 4 kB of every decoded picture, and threads that wait for each other while pages
    come and go. When a program first frees a larger buffer, glibc takes its size as the new
    threshold. So this function frees one that was never touched. (Decoding pictures on two threads:
    1.6 times as fast. glibc keeps at most twice that size, 64 MB. If a program has set its own
    threshold, or there is no glibc, nothing changes.)
    """
    with suppress(MemoryError):  # With less memory than that, nothing changes.
        np.empty(_LARGE_BYTES, dtype=np.uint8)
