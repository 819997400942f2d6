"""Files in memory without a name, shared by passing their descriptors, and their mappings."""

import mmap
import os
import weakref

import numpy as np
import numpy.typing as npt


def create_unnamed(size: int) -> int:
    """Makes a file in memory that no other process can find; returns its descriptor.

    It ends with the last process that has it open or mapped, so a killed process leaves nothing.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("bushel", os.MFD_CLOEXEC)
    else:  # macOS: a file whose name is removed before other processes could find it.
        import tempfile

        with tempfile.TemporaryFile(prefix="bushel-") as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def map_file(descriptor: int, *, writable: bool) -> npt.NDArray[np.uint8]:
    """Maps all of a file as bytes; the mapping lives as long as any array on it.

    A read-only mapping cannot be made writable: numpy refuses, and so would the system.

    >>> descriptor = create_unnamed(3)
    >>> map_file(descriptor, writable=True)[:] = [1, 2, 3]
    >>> map_file(descriptor, writable=False)
    array([1, 2, 3], dtype=uint8)
    >>> os.close(descriptor)
    """
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    return np.frombuffer(mmap.mmap(descriptor, 0, access=access), dtype=np.uint8)


def aligned(size: int, step: int = 64) -> int:
    """Rounds a size up, so that the next array begins at a boundary that suits vector instructions.

    >>> aligned(1), aligned(64), aligned(9, 8)
    (64, 64, 16)
    """
    return -(-size // step) * step


# Open files of mappings, by address, so that they can be passed to other processes.
_open_files: dict[int, int] = {}


def keep_file(mapped: npt.NDArray[np.uint8], descriptor: int) -> None:
    """Keeps the file of a mapping open as long as an array uses the mapping."""
    address = mapped.ctypes.data
    _open_files[address] = os.dup(descriptor)
    weakref.finalize(mapped, _forget_file, address, os.getpid())


def _forget_file(address: int, process: int) -> None:
    descriptor = _open_files.pop(address, None)
    if descriptor is not None and process == os.getpid():
        os.close(descriptor)


def file_of(array: npt.NDArray[np.generic]) -> tuple[int, int] | None:
    """Finds the file in which an array lies, if it was kept: its descriptor, and the offset."""
    if not _open_files:
        return None
    base: object = array
    while isinstance(base, np.ndarray):
        descriptor = _open_files.get(base.ctypes.data)
        if descriptor is not None and not isinstance(base.base, np.ndarray):
            return descriptor, array.ctypes.data - base.ctypes.data
        base = base.base
    return None
