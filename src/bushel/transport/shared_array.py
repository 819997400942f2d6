"""`SharedMemoryArray`: a numpy array in shared memory with a name.

bushel's own workers send arrays another way (see `slots`), without names. This class is for
programs that pass arrays between processes themselves.
"""

import atexit
import math
import mmap
import operator
import os
import queue
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.shared_memory import create_named, open_named, remove_named

if TYPE_CHECKING:
    from multiprocessing.shared_memory import SharedMemory

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SharedMemoryArrayMetadata:
    """The description with which another process opens an array: small, and easy to send."""

    name: str
    shape: Iterable[int]
    dtype: npt.DTypeLike

    def close_and_unlink_shm(self) -> None:
        """Removes the memory; arrays on it stay valid for as long as they live."""
        remove_named(self.name)


class SharedMemoryArray(np.ndarray[Any, Any]):
    """An array in shared memory: pickled, it is a name, and opened again without a copy.

    A new one is full of zeros. What computations make of it are ordinary arrays; views of it
    lie in the same memory, and are pickled as views.

    >>> import pickle
    >>> array = SharedMemoryArray((2, 3), np.int32)
    >>> array.unlink_on_del()
    >>> pickle.loads(pickle.dumps(array))[0] = 7
    >>> array[:, 0]
    SharedMemoryArray([7, 0], dtype=int32)
    >>> array + 1
    array([[8, 8, 8],
           [1, 1, 1]], dtype=int32)

    The memory outlives the array: it is meant for another process, which may not have opened
    it yet. One process, the last to use it, calls `unlink_on_del()`. (What nobody removed is
    removed after the program and its children have ended, with a warning of Python's.)
    """

    _memory: "_Mapping | None"

    def __new__(cls, shape: Iterable[int], dtype: npt.DTypeLike = float) -> "SharedMemoryArray":
        sizes = tuple(map(operator.index, shape))
        kind = np.dtype(dtype)
        _check_dtype(kind)
        if min(sizes, default=0) < 0:
            raise ValueError(f"an array cannot have the shape {sizes}: sizes are not negative.")
        # Shared memory cannot be empty.
        descriptor, name = create_named(max(1, math.prod(sizes) * kind.itemsize))
        return cls._over(_Mapping(descriptor, name), sizes, kind)

    def __array_finalize__(self, obj: Any) -> None:
        # A copy has its own memory, which other processes cannot open.
        self._memory = None if self.flags.owndata else getattr(obj, "_memory", None)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if array is self:  # `array += 1`
            return self
        # numpy 1 does not say when it expects a scalar: return one for any single number.
        plain = np.asarray(array)
        return plain if plain.ndim else plain[()]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        memory = self._memory
        if memory is None:
            return np.asarray(self).__reduce_ex__(protocol)
        offset = self.ctypes.data - memory.address
        return _reopen, (type(self), memory.name, self.shape, self.dtype, offset, self.strides)

    @classmethod
    def from_metadata(cls, metadata: SharedMemoryArrayMetadata) -> "SharedMemoryArray":
        """Opens the array that was described, in this or another process."""
        return cls._over(_opened(metadata.name), metadata.shape, metadata.dtype)

    @classmethod
    def from_shared_memory(
        cls, shm: "SharedMemory", shape: Any, dtype: npt.DTypeLike
    ) -> "SharedMemoryArray":
        """Makes an array on open memory; closing `shm` afterwards does it no harm."""
        return cls._over(_opened(shm.name), shape, dtype)

    @classmethod
    def _over(
        cls,
        memory: "_Mapping",
        shape: Any,
        dtype: npt.DTypeLike,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> "SharedMemoryArray":
        _check_dtype(np.dtype(dtype))
        # Every view of this array refers to the bytes, and they refer to the memory.
        array: SharedMemoryArray = super().__new__(
            cls, shape, dtype, np.asarray(memory), offset, strides
        )
        array._memory = memory
        return array

    @property
    def metadata(self) -> SharedMemoryArrayMetadata:
        """The name, shape and dtype, to be sent to another process."""
        memory = self._in_memory()
        if self.ctypes.data != memory.address or not self.flags.c_contiguous:
            raise ValueError(
                "this is a part of an array in shared memory, and metadata (name, shape and dtype) "
                "cannot say which part. Send the metadata of the whole array and take the part "
                "there, or pickle the part, which keeps its place."
            )
        return SharedMemoryArrayMetadata(memory.name, self.shape, self.dtype)

    def unlink_on_del(self) -> None:
        """Removes the memory when this array, and every view of it here, is gone."""
        memory = self._in_memory()
        if memory.removal is None:
            memory.removal = weakref.finalize(memory, _remove, memory.name, os.getpid())

    def _in_memory(self) -> "_Mapping":
        if self._memory is None:
            raise ValueError(
                "this array is a copy and not in shared memory. Make a `SharedMemoryArray` of "
                "its shape, and copy the values there: `new[...] = array`."
            )
        return self._memory

    @classmethod
    def enable_async_del(cls, num_threads: int = 1, max_outstanding_requests: int = 50) -> None:
        """Frees memory in threads from now on, as freeing a gigabyte takes a while.

        If `max_outstanding_requests` are waiting, the calling thread frees it itself.
        """
        if num_threads < 1 or max_outstanding_requests < 0:
            raise ValueError(
                "`enable_async_del` needs a thread at least, and no negative number of requests: "
                f"num_threads={num_threads}, max_outstanding_requests={max_outstanding_requests}."
            )
        _closer.start(num_threads, max_outstanding_requests)

    @classmethod
    def close_shm_async(cls, shm: "SharedMemory", unlink: bool) -> None:
        """Closes memory, and removes it if asked to, in the threads of `enable_async_del`.

        Without such threads it is done at once.
        """
        if unlink:
            with suppress(FileNotFoundError):
                remove_named(shm.name)
        _closer.close(shm)


class _Mapping:
    """A mapping that is closed when the last array on it is gone.

    Arrays have its address, not its buffer: a buffer could not be closed while any array refers to
    it, and later there would be no object left to close it in a thread.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        try:
            self._mapping = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self.name = name
        # Kept, as at the very end of a program there are no globals any more.
        self._close = _closer.close
        self.address: int = np.frombuffer(self._mapping, np.uint8).ctypes.data
        self.removal: weakref.finalize[..., Any] | None = None
        self.__array_interface__ = {
            "shape": (len(self._mapping),),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        if hasattr(self, "_close"):  # Mapping may have failed.
            self._close(self._mapping)


def _opened(name: str) -> _Mapping:
    try:
        return _Mapping(open_named(name, writable=True), name)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            error.errno,
            f"there is no shared memory with the name {name!r}: it was removed before it was "
            "opened. Let the process that opens it last be the one to call `unlink_on_del()`",
        ) from None


def _reopen(
    cls: type[SharedMemoryArray],
    name: str,
    shape: tuple[int, ...],
    dtype: "np.dtype[Any]",
    offset: int,
    strides: tuple[int, ...],
) -> SharedMemoryArray:
    return cls._over(_opened(name), shape, dtype, offset, strides)


def _remove(name: str, pid: int) -> None:
    # A forked process has the array, too, but must not clean up.
    if os.getpid() == pid:
        with suppress(FileNotFoundError):  # Another process has removed it.
            remove_named(name)


def _check_dtype(dtype: "np.dtype[Any]") -> None:
    if dtype.hasobject:
        raise TypeError(
            f"shared memory cannot hold Python objects (dtype {dtype}), which mean nothing to "
            "another process. Choose a dtype of numbers or of fixed-width strings."
        )


class _Closable(Protocol):
    def close(self) -> None: ...


def _close(memory: _Closable) -> None:
    # A `SharedMemory` of which the user has a view: it ends with that.
    with suppress(BufferError):
        memory.close()


class _Closer:
    """Closes mappings: in threads if there are any, or at once.

    Destructors call it, which may interrupt any line of Python, this class included. So there is no
    lock, and the queue is of a kind whose `put` may be interrupted.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[_Closable | None] = queue.SimpleQueue()
        self._most_waiting = 0
        self._threads: list[threading.Thread] = []
        self._pid = 0  # A fork does not copy threads.

    def start(self, num_threads: int, most_waiting: int) -> None:
        """Starts threads until there are `num_threads`."""
        if self._pid != os.getpid():
            self._pid, self._threads, self._waiting = os.getpid(), [], queue.SimpleQueue()
            atexit.register(self.stop)
        while len(self._threads) < num_threads:
            name = f"bushel-close-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._most_waiting = most_waiting

    def close(self, memory: _Closable) -> None:
        threads_run = self._threads and self._pid == os.getpid()
        if threads_run and self._waiting.qsize() < self._most_waiting:
            self._waiting.put(memory)
        else:
            _close(memory)

    def stop(self) -> None:
        """Ends the threads after the waiting requests; from then on memory is closed at once."""
        threads, self._threads = self._threads, []
        if self._pid == os.getpid():
            for _ in threads:
                self._waiting.put(None)
            for thread in threads:
                thread.join()

    def _work(self) -> None:
        while (memory := self._waiting.get()) is not None:
            _close(memory)
            del memory  # Not kept until the next one comes.


_closer = _Closer()
