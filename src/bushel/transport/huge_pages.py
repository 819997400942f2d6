"""Large pages of memory (2 MB) for slots.

Memory is allocated page by page, and a batch of ten megabytes has 2,400 pages of 4 kB. Each is
cleared and mapped by itself at its first use, and there are more than the processor's address cache
(TLB) holds, so that each is looked up again for every batch. In pages of 2 MB there are five.
(Stacking 9.6 MB into slots in turn: 0.95 ms of CPU with small pages, 0.73 with large ones.)

Linux gives files in memory small pages unless an administrator changes it, but joins those of a
mapping on request (`MADV_COLLAPSE`, since 6.1). If it has large pages ready, the first write of a
slot takes 1.3 ms of CPU in place of 7.6. If it has to free memory for them first, it takes 15 to
19, and no further requests are made. If it refuses, the memory stays as it is.
"""

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Callable

import numpy as np

PAGE = 1 << 21
# Smaller slots have few pages, which stay in the address cache.
_LEAST = 2 * PAGE
_MADV_COLLAPSE = 25
_MAP_FIXED = 0x10
# CPU seconds in which the system provides 2 MB in small pages.
_SLOW_SECONDS = 0.0016


def file_size(size: int) -> int:
    """The length of a mapping's file; parts that are not written take no memory."""
    return size if size < _LEAST else -(-size // PAGE) * PAGE


def map_aligned(descriptor: int, size: int) -> memoryview:
    """Maps a file of `file_size(size)`; a large one where a large page may begin.

    It may end after `size`, and lives as long as any object refers to it.
    """
    if size < _LEAST or not sys.platform.startswith("linux"):
        return memoryview(mmap.mmap(descriptor, size))
    size = file_size(size)
    # The system chooses the place, larger by the most that it may be misaligned; the file is then
    # mapped over a part of it, which no other thread can have taken in the meantime.
    place = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = memoryview(place)
    address = _address(view)
    start = -address % PAGE
    _map_over(address + start, size, descriptor)
    return view[start : start + size]


def join_pages(
    mapped: memoryview, size: int, clock: Callable[[], float] = time.thread_time
) -> bool:
    """Requests large pages for the first `size` bytes of a new mapping.

    Returns whether further requests, for other mappings, are worthwhile. The last page is a large
    one if at least half of it is used.
    """
    pages = (size + PAGE // 2) // PAGE
    whole = mapped.obj
    if size < _LEAST or pages * PAGE > len(mapped) or _address(mapped) % PAGE:
        return True
    assert isinstance(whole, mmap.mmap)
    began = clock()
    for page in range(pages):
        mapped[page * PAGE] = 0  # Pages that do not exist cannot be joined.
    start = _address(mapped) - _address(memoryview(whole))
    try:
        whole.madvise(_MADV_COLLAPSE, start, pages * PAGE)
    except OSError:
        return False
    return clock() - began <= pages * _SLOW_SECONDS


def _map_over(address: int, size: int, descriptor: int) -> None:
    """Maps a file over memory that is mapped already, and unmaps both together."""
    system = ctypes.CDLL(None, use_errno=True).mmap
    system.restype = ctypes.c_void_p
    system.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
        ctypes.c_long,
    )
    access = mmap.PROT_READ | mmap.PROT_WRITE
    mapped = system(address, size, access, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
    if mapped != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _address(mapped: memoryview) -> int:
    return int(np.frombuffer(mapped, np.uint8).ctypes.data)
