"""Runs a search over a file with numpy on all cores, in chunks: for lines, tar and TFRecord."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from bushel.core.machine import available_cores
from bushel.core.positions import Keys
from bushel.files.local import ByteFile, LocalFile

if TYPE_CHECKING:
    from concurrent.futures import Future

Found = TypeVar("Found")
Bytes: TypeAlias = npt.NDArray[np.uint8]
# Finds something in the bytes at a place. The array is scratch memory of the same size, overwritten
# afterwards, as are the bytes.
Search: TypeAlias = Callable[[int, Bytes, npt.NDArray[np.bool_]], Found]

# Large, so that threads seldom need the interpreter's lock.
CHUNK = 1 << 23
_MOST_THREADS = 4
# Bits of a float below its exponent, and the bias of the exponent.
_MANTISSA, _BIAS = 52, 1023


def in_chunks(
    file: ByteFile, start: int, chunk: int, search: Search[Found]
) -> Iterator[tuple[int, Found]]:
    """Searches a file from a place on, several chunks in parallel.

    Yields the end of each chunk, and the results in it, in the order of the file.
    """
    threads = min(_MOST_THREADS, available_cores())
    room = max(0, min(chunk, file.size - start))
    # Fresh memory is as slow as the search, so chunks reuse it.
    free: deque[tuple[Bytes, npt.NDArray[np.bool_]]] = deque()

    def look(first: int, stop: int) -> Found:
        try:
            memory = free.pop()
        except IndexError:
            memory = np.empty(room, np.uint8), np.empty(room, np.bool_)
        data, spare = memory[0][: stop - first], memory[1][: stop - first]
        if isinstance(file, LocalFile):
            file.read_into(first, data)
        else:
            data = np.frombuffer(file.read(first, stop), np.uint8)
        found = search(first, data, spare)
        free.append(memory)
        return found

    if start < file.size <= start + chunk:
        # Small files come by the thousand, and starting a thread takes longer than the search.
        yield file.size, look(start, file.size)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque[tuple[int, Future[Found]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for first in range(start, file.size, chunk):
                stop = min(first + chunk, file.size)
                waiting.append((stop, pool.submit(look, first, stop)))
                if len(waiting) > threads:
                    stop, found = waiting.popleft()
                    yield stop, found.result()
            while waiting:
                stop, found = waiting.popleft()
                yield stop, found.result()
        finally:
            for _, found in waiting:
                found.cancel()


def places_of(hits: npt.NDArray[np.bool_], apart: int = 64) -> Keys:
    """The places of True, fast if they are rare: one in 64, or in 32.

    >>> places_of(np.frombuffer(b"one\\ntwo\\nthree", np.uint8) == 10)
    array([3, 7])
    """
    packed = np.packbits(hits, bitorder="little")
    if len(packed) % 8:
        packed = np.append(packed, np.zeros(-len(packed) % 8, np.uint8))
    for bits in (64, 32, 16):
        if bits > apart:
            continue
        words = packed.view(f"<u{bits // 8}")
        where = np.flatnonzero(words != 0)
        found = words[where]
        # Without its lowest bit, most words are zero.
        others = found & (found - found.dtype.type(1))
        more = np.count_nonzero(others)
        if not more:
            return where * bits + highest_bits(found)
        if more * 8 <= len(others):
            break
    else:
        return np.flatnonzero(hits)
    parts = []
    while len(where):
        parts.append(where * bits + highest_bits(found ^ others))
        rest = np.flatnonzero(others)
        where, found = where[rest], others[rest]
        others = found & (found - found.dtype.type(1))
    return np.sort(np.concatenate(parts), kind="stable")


def highest_bits(numbers: npt.NDArray[np.unsignedinteger[Any]]) -> Keys:
    """The places of the highest bits of numbers that are powers of two, or below 1 << 53.

    >>> highest_bits(np.array([1, 8, 255, 1 << 63], np.uint64))
    array([ 0,  3,  7, 63])
    """
    exponents = numbers.astype(np.float64).view(np.int64)
    exponents >>= _MANTISSA
    exponents -= _BIAS
    return exponents
