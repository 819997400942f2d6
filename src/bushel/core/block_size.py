"""Tunes how large blocks are while a pipeline runs, from measured times.

The times are measured by the caller, so a test can pass its own.
"""

from typing import Any

from bushel.core.sizes import bytes_of

# Large enough to be worth its overhead, and small enough to arrive soon. To locate a few shuffled
# and mixed records, read them and pass them on takes some 400 microseconds, however few they are.
TARGET_SECONDS = 0.016
# Seconds to read ahead in one of several streams, while the others and the caller wait.
SOON_SECONDS = 0.004
MOST_ELEMENTS = 8192
# A block should still be in the cache when it is handed out, and the memory of the previous block
# should be free again for the next: fresh pages cost more than copying into them.
MOST_BYTES = 1 << 18
# Blocks that are made one after the other may have a few elements nevertheless, up to a size that
# exceeds the nearest cache but not the next one: the overhead of a block is that of filling some
# 100 kB, which is a whole batch of tokens.
FEW = 8
_BYTES_OF_A_FEW = 1 << 21
# The limit above is about memory. If making an element takes longer than filling its memory, a
# block may have more of them, by the ratio of the two times, and at most by this factor.
_SECONDS_A_BYTE = 1e-9
_LARGEST_BYTES = 1 << 24
_LOOK_AT_BYTES_EVERY = 64
# Records that together take longer, or are larger, than this are read in smaller blocks than the
# source prefers, as lanes and workers have many blocks at a time.
_LEAST_SECONDS = 0.05
_LEAST_BYTES = 1 << 22


class BlockSize:
    """The number of elements of the next block, aiming at a few milliseconds of work."""

    def __init__(
        self,
        most: int = MOST_ELEMENTS,
        first: int = 1,
        most_bytes: int = MOST_BYTES,
        least: int = 1,
        side_by_side: int = 1,
        target_seconds: float = TARGET_SECONDS,
        under_way: int = 0,
        few: int = 1,
    ) -> None:
        """`side_by_side` is the number of blocks that share the cores; each takes longer for that.

        If `under_way` blocks are requested ahead, none is larger than its share of all elements
        before it: so the first elements come soon, however large blocks become. `few` elements may
        be more than `most_bytes` together.
        """
        self._most = max(1, most)
        self.target_seconds, self._under_way = target_seconds, under_way
        self._first = first
        self._learned = 0
        # The number of elements per request that the source prefers for speed.
        self._least = least
        self._least_seconds = _LEAST_SECONDS * side_by_side
        self._most_bytes, self._few = most_bytes, few
        # Bytes per element, as far as known; 0 before.
        self.bytes_each = 0
        self._seconds_each = 0.0
        self._blocks = 0
        self.size = min(first, self._most)

    def learn(self, count: int, seconds: float) -> None:
        """Takes note of how long a block of `count` elements took."""
        if not count:
            return
        each = seconds / count
        self._learned += count
        # The latest block has the most weight, so that a change of the records is followed quickly.
        self._seconds_each = each if not self._seconds_each else (self._seconds_each + each) / 2
        ideal = min(self.target_seconds / max(self._seconds_each, 1e-9), self._most)
        if self._seconds_each * self._least < self._least_seconds:
            ideal = max(ideal, self._least)
        growth = self.size * 4
        if self._under_way:
            growth = max(self._first, self._learned // self._under_way)
        self.size = int(max(1, min(ideal, growth, self._by_bytes())))

    @property
    def seconds(self) -> float:
        """Seconds per block, as far as known; 0 before."""
        return self.size * self._seconds_each

    def within(self, seconds: float) -> int:
        """The number of elements that take so long, up to the size of a block."""
        return int(max(1, min(self.size, seconds / max(self._seconds_each, 1e-9))))

    def wants_sample(self) -> bool:
        """Whether to measure an element's size: at the first elements, then now and then."""
        self._blocks += 1
        return self._blocks <= 4 or not self._blocks % _LOOK_AT_BYTES_EVERY

    def limit_bytes(self, element: Any) -> None:
        """Takes note of the size of elements, given one of them."""
        self.limit_to(bytes_of(element))

    def limit_to(self, bytes_each: int) -> None:
        """Takes note of the size of elements."""
        self.bytes_each = max(1, bytes_each)
        self.size = int(max(1, min(self.size, self._by_bytes())))

    def _by_bytes(self) -> float:
        """The number of elements that fit into the memory limit."""
        each = self.bytes_each
        if not each:
            return max(self._most, self._least)
        costly = max(1.0, self._seconds_each / (each * _SECONDS_A_BYTE))
        most_bytes = min(self._most_bytes * costly, max(self._most_bytes, _LARGEST_BYTES))
        most = max(most_bytes, min(self._few * each, _BYTES_OF_A_FEW)) // each
        return max(most, min(self._least, _LEAST_BYTES // each))
