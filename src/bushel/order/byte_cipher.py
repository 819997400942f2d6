"""The cipher of short ranges, of which both halves are bytes: see `order/permutation.py`.

In a range of a hundred, a position walks over some 650 of the cipher's 65,536 values until it is
back in the range. `walk_together` walks many positions, each with keys of its own: that takes a
tenth of the time of `encrypt_all` for each.
"""

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Positions

# Eight bytes are processed at once as one word.
_BYTES = 0x0101010101010101
# The largest position whose first byte is 0: that a value is back in the range is seen at once.
WIDEST = 255
# Steps between two looks at which values are back: a look costs about as much as two steps.
_STEPS = 16


def encrypt_all(keys: tuple[int, ...]) -> Positions:
    """The images of all values of two bytes."""
    byte = np.arange(256, dtype=np.uint8)
    left, right = byte.repeat(256).view(np.uint64), np.tile(byte, 256).view(np.uint64)
    for odd, even in zip(keys[::2], keys[1::2], strict=True):
        left ^= _round_of_bytes(right)
        left ^= np.uint64(odd * _BYTES)
        right ^= _round_of_bytes(left)
        right ^= np.uint64(even * _BYTES)
    images = left.view(np.uint8).astype(np.int64)
    images <<= 8
    images |= right.view(np.uint8)
    return images


def _round_of_bytes(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The round function of each byte; rotating a byte by eight bits leaves it as it is."""
    mixed = _rotate_bytes(words, 1)
    mixed &= words
    mixed ^= _rotate_bytes(words, 2)
    return mixed


def _rotate_bytes(words: npt.NDArray[np.uint64], by: int) -> npt.NDArray[np.uint64]:
    turned = words << np.uint64(by)
    turned &= np.uint64((0xFF << by & 0xFF) * _BYTES)
    low = words >> np.uint64(8 - by)
    low &= np.uint64((0xFF >> 8 - by) * _BYTES)
    turned |= low
    return turned


def walk_together(
    positions: Positions,
    max_index: int,
    keys: list[npt.NDArray[np.uint32]],
    table: Positions,
    most_left: int,
) -> tuple[Positions, Positions]:
    """The images of positions, and the places of those that still walk: at most `most_left`.

    `max_index` is at most `WIDEST`. `keys` has one for each round and position, and `table` the
    round function of each byte.
    """
    images = np.zeros(len(positions), dtype=np.int64)
    places = np.arange(len(positions))
    left, right = np.zeros_like(positions), positions
    of_rounds = [key.astype(np.int64) for key in keys]
    while len(places) > most_left:
        lefts, rights = _walked(left, right, of_rounds, table)
        is_back = (lefts == 0) & (rights <= max_index)
        first = is_back.argmax(axis=0)
        done = is_back[first, np.arange(len(places))]
        left, right = lefts[-1], rights[-1]
        if done.any():
            here = done.nonzero()[0]
            images[places.take(here)] = rights[first.take(here), here]
            still = (~done).nonzero()[0]
            places, left, right = places.take(still), left.take(still), right.take(still)
            of_rounds = [key.take(still) for key in of_rounds]
    return images, places


def _walked(
    left: Positions, right: Positions, keys: list[Positions], table: Positions
) -> tuple[Positions, Positions]:
    """Both halves of the values after each of some steps: a row for each step."""
    lefts, rights = np.empty((2, _STEPS, len(left)), dtype=np.int64)
    mixed = np.empty_like(left)
    for new_left, new_right in zip(lefts, rights, strict=True):
        for odd, even in zip(keys[::2], keys[1::2], strict=True):
            # (All values are bytes, so "clip" only spares numpy the check.)
            table.take(right, None, mixed, "clip")
            np.bitwise_xor(left, mixed, new_left)
            new_left ^= odd
            table.take(new_left, None, mixed, "clip")
            np.bitwise_xor(right, mixed, new_right)
            new_right ^= even
            left, right = new_left, new_right
    return lefts, rights
