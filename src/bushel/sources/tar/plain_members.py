"""Finds ordinary members of a tar file all at once with numpy.

These are regular files with short names, each followed by the next; before each may be a header
that Python's `tarfile` writes for times that are no whole seconds.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys

BLOCK = 512
Names: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]

_MAGIC = int.from_bytes(b"usta", "little")
_NAME_BYTES = 100
# Eight digits zero, and the bits in which octal digits do not differ from these.
_ZEROS = np.uint64(0x3030303030303030)
_NO_DIGIT = np.uint64(0xF8F8F8F8F8F8F8F8)
# How eight digits in a word become one number: bits of each, bits between two, what remains.
_JOINED = tuple(
    (np.uint64(bits), np.uint64(apart), np.uint64(mask))
    for bits, apart, mask in (
        (3, 8, 0x00FF00FF00FF00FF),
        (6, 16, 0x0000FFFF0000FFFF),
        (12, 32, 0x00000000FFFFFFFF),
    )
)
# Shorter runs are found as fast one by one.
_SHORTEST_RUN = 8
# The keys of times are mtime, atime and ctime; three lines of less than a hundred bytes.
_TIMES = np.frombuffer(b"mac", np.uint8)
_REST_OF_TIME = np.frombuffer(b" time=", np.uint8)
_MOST_OF_TIMES = 300


class PlainMembers(NamedTuple):
    """Neighbours: the beginning of each, the start and end of its data, and its name."""

    begins: Keys
    starts: Keys
    stops: Keys
    # A name in each row, padded with zeros.
    names: Names

    def part(self, start: int, stop: int) -> "PlainMembers":
        """Some of them."""
        these = slice(start, stop)
        return PlainMembers(
            self.begins[these], self.starts[these], self.stops[these], self.names[these]
        )

    def each(self) -> Iterator[tuple[int, int, int, str]]:
        """One after the other, each with its name as text."""
        count, width = self.names.shape
        names = [b""] * count
        if width and count:
            names = np.ascontiguousarray(self.names).view(f"S{width}").ravel().tolist()
        places = (column.tolist() for column in (self.begins, self.starts, self.stops))
        for begin, start, stop, name in zip(*places, names, strict=True):
            yield begin, start, stop, name.decode("utf-8", "surrogateescape")


class PlainRuns:
    """Plain members of a part of a file: runs of neighbours, in order."""

    def __init__(self, runs: list[PlainMembers]) -> None:
        self._runs = runs
        self._firsts = [int(run.begins[0]) for run in runs]

    def __iter__(self) -> Iterator[PlainMembers]:
        return iter(self._runs)

    def from_place(self, place: int) -> PlainMembers | None:
        """The rest of a run from the member on that begins there; None if there is none."""
        number = bisect_right(self._firsts, place) - 1
        if number < 0:
            return None
        run = self._runs[number]
        first = int(run.begins.searchsorted(place))
        if first == len(run.begins) or run.begins[first] != place:
            return None
        return run.part(first, len(run.begins)) if first else run


def plain_members(data: bytes | memoryview, place: int) -> PlainRuns:
    """The plain members in the data, which is from this place of a file.

    Without the last one, as its successor is not visible.
    """
    count = len(data) // BLOCK
    if not count:
        return PlainRuns([])  # The end of a truncated file.
    magic: Any = np.ndarray((count,), "<u4", data, 257, (BLOCK,))
    blocks = np.flatnonzero(magic == _MAGIC)
    table = np.frombuffer(data, np.uint8, count * BLOCK).reshape(-1, BLOCK)
    heads = table.take(blocks, 0)
    leading, has_leading = _octal(_words(heads, 124))
    trailing, has_trailing = _octal(_words(heads, 127))
    # Eleven digits: the first three of these, and then the other eight.
    sizes = (leading >> 15 << 24) + trailing
    field = _words(heads, 148)
    # Six digits, with zeros before them in place of what follows them.
    sums, is_sum = _octal(field << np.uint64(16) | _ZEROS & np.uint64(0xFFFF))
    # In the sum of all bytes, the field itself counts as spaces. Its lower half is enough.
    added = heads.sum(1, dtype=np.uint16) - _byte_sums(field) + 8 * 32
    right = has_leading & has_trailing & is_sum & (sums.astype(np.uint16) == added)
    # Contents may look like a header as well; then a run ends there, and that part is read slowly.
    right[:-1] &= blocks[:-1] + 1 + (sizes[:-1] + BLOCK - 1) // BLOCK == blocks[1:]
    right[-1:] = False
    kinds = heads[:, 156]
    plain = right & ((kinds == ord("0")) | (kinds == 0)) & (heads[:, 345] == 0)
    names = _cut_names(heads)
    plain &= ~_have_gaps(names)
    # Times to the microsecond are in members of their own, before the members that they describe.
    of_next = np.zeros(len(blocks), np.bool_)
    extended = np.flatnonzero(right & (kinds == ord("x")) & (sizes < _MOST_OF_TIMES))
    extended = extended[plain[extended + 1]]
    if len(extended):
        of_next[extended] = _are_times(table.take(blocks[extended] + 1, 0), sizes[extended])
    good = np.concatenate([[False], plain | of_next, [False]])
    edges = np.flatnonzero(good[1:] != good[:-1])
    found = []
    for first, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if stop - first >= _SHORTEST_RUN:
            chosen = np.flatnonzero(plain[first:stop]) + first
            # Other entries belong to the next member.
            begins = blocks[chosen - of_next[chosen - 1] * (chosen > first)]
            starts = (blocks[chosen] + 1) * BLOCK + place
            members = PlainMembers(
                begins * BLOCK + place, starts, starts + sizes[chosen], names[chosen]
            )
            found.append(members)
    return PlainRuns(found)


def _cut_names(heads: Names) -> Names:
    """The names in headers, up to the width of the longest."""
    # Words are faster than bytes, and a column of them faster than rows.
    words = heads.view("<u8")
    width = 0
    for number in range(-(-_NAME_BYTES // 8)):
        used = int(np.bitwise_or.reduce(words[:, number]))
        if not used:
            break
        width = 8 * number + -(-used.bit_length() // 8)
    return np.ascontiguousarray(heads[:, : min(width, _NAME_BYTES)])


def _have_gaps(names: Names) -> npt.NDArray[np.bool_]:
    """Which names have bytes after a zero, where they end."""
    gaps = (names[:, :-1] == 0) & (names[:, 1:] != 0)
    # They are rare; checking all at once is faster than row by row.
    found: npt.NDArray[np.bool_] = gaps.any(1) if gaps.any() else np.zeros(len(names), np.bool_)
    return found


def _are_times(bodies: Names, sizes: Keys) -> npt.NDArray[np.bool_]:
    """Which extended headers have only times, in lines such as "20 mtime=1600000.25"."""
    at = np.zeros(len(bodies), np.int64)
    for _ in _TIMES:
        head = np.take_along_axis(bodies, at[:, None] + np.arange(9), 1)
        tens, ones = (head[:, :2] - np.uint8(ord("0"))).astype(np.int64).T
        fits = (tens < 10) & (ones < 10) & (head[:, 3:4] == _TIMES).any(1)
        fits &= (head[:, [2, 4, 5, 6, 7, 8]] == _REST_OF_TIME).all(1)
        at += (fits & (at < sizes)) * (10 * tens + ones)
    found: npt.NDArray[np.bool_] = at == sizes
    return found


def _words(heads: Names, at: int) -> Words:
    """Eight bytes of each header, the first of them as the lowest of a number."""
    return np.ascontiguousarray(heads[:, at : at + 8]).view("<u8")[:, 0]


def _octal(words: Words) -> tuple[Keys, npt.NDArray[np.bool_]]:
    """Numbers of eight octal digits, and whether they are valid; all digits at once.

    >>> numbers, right = _octal(np.frombuffer(b"0000017700000008", "<u8"))
    >>> numbers.tolist()[0], right.tolist()
    (127, [True, False])
    """
    right = words & _NO_DIGIT == _ZEROS
    # Neighbours are joined: the first stands for eight times as much, then 64 times, ...
    words = words ^ _ZEROS
    for bits, apart, mask in _JOINED:
        words = ((words << bits) + (words >> apart)) & mask
    return words.view(np.int64), right


def _byte_sums(words: Words) -> npt.NDArray[np.uint16]:
    """The sums of the eight bytes of numbers."""
    every_other = _JOINED[0][2]
    sums = (words & every_other) + (words >> np.uint64(8) & every_other)
    return (sums * np.uint64(0x0001000100010001) >> np.uint64(48)).astype(np.uint16)
