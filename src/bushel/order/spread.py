"""Shuffle of a stream with a bounded memory: where each element goes is arithmetic.

The stream is cut into blocks of n elements. The elements of a block are dealt, by a random
permutation, to the next n output blocks, one to each: so output block e has one element from
each of the input blocks e - n + 1 to e, and those are permuted again.

    input          a0 a1 a2   b0 b1 b2   c0 c1 c2   d0 d1 d2           n = 3
    output block 2: one of a, one of b, one of c      c1 a0 b2
    output block 3: one of b, one of c, one of d      b0 d1 c2

Both permutations are functions of the seed and the number of the block. So any output block
can be made again from n input blocks, without what came before them.
"""

import math

import numpy as np
import numpy.typing as npt

from bushel.core.frozen import frozen
from bushel.core.node import ONE_LANE, Node, refuse_length

Words = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_64_BITS = 0xFFFFFFFFFFFFFFFF


@frozen
class StreamShuffleNode(Node):
    """Spreads each element over a stretch of the stream that is twice the buffer."""

    input: Node
    buffer_size: int
    seed: int
    # Blocks of different lanes are different ones (see `Each.lane`).
    lane: tuple[int, int] = ONE_LANE

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def length(self) -> int:
        return refuse_length(self)

    def describe(self) -> str:
        return f"shuffle({self.buffer_size}, seed={self.seed})"

    def dealt(self, block: int, size: int) -> list[int]:
        """Which element of an input block goes to its first output block, its second, ..."""
        return self._permutation(0, block, size)

    def arranged(self, block: int, size: int) -> list[int]:
        """In which order the elements of an output block come."""
        return self._permutation(1, block, size)

    def _permutation(self, stage: int, block: int, size: int) -> list[int]:
        lane, lanes = self.lane
        start = _mixed_one(self.seed * 2 + stage) + (block * lanes + lane << 32)
        words = np.arange(size, dtype=np.uint64) + np.uint64(start & _64_BITS)
        # All different, since the words are and mixing can be undone: the order is one.
        order: list[int] = _mixed(words).argsort().tolist()
        return order


def side_of(buffer_size: int) -> int:
    """How large blocks may be such that a buffer holds the elements that wait.

    Of n blocks, n elements of the last one wait, n - 1 of the one before, and so on.

    >>> side_of(1), side_of(3), side_of(10_000)
    (1, 2, 140)
    """
    return (math.isqrt(8 * buffer_size + 1) - 1) // 2


def _mixed(words: Words) -> Words:
    """A permutation of all 64-bit words, in which neighbours have nothing in common."""
    words = words * np.uint64(_GOLDEN)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _mixed_one(word: int) -> int:
    return int(_mixed(np.array([word], dtype=np.uint64))[0])
