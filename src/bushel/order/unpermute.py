"""The inverse of a shuffle's permutation: the position of a record.

A cipher is undone by its rounds in reverse. A walk is undone by a walk in the other direction: on
the way from a position to its image, all values were outside the range, so the first value inside,
seen from the image, is the position.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Positions, grouped
from bushel.order.permutation import (
    RoundKeys,
    enough_for_whole,
    half_width,
    round_function,
    round_keys,
    round_keys_for_each,
    round_values,
    whole_permutation,
)

# Below this many positions Python's integers are faster than numpy's call overhead.
_SCALAR_LIMIT = 16
# In a shorter range nearly every value is outside, and the walk takes up to thousands of steps a
# position. Then whole permutations are computed, or each walks by itself.
_SHORT = 4096

_Words = npt.NDArray[np.uint64]


def unpermute(
    images: Positions, max_index: int, seeds: int | Positions, rounds: int = 4
) -> Positions:
    """Returns the positions of [0, max_index] that `permute` maps to these images.

    `seeds` picks the permutation: one for all images, or one for each.

    >>> from bushel.order.permutation import permute
    >>> unpermute(permute(np.arange(5), max_index=4, seeds=7), max_index=4, seeds=7)
    array([0, 1, 2, 3, 4])
    """
    if max_index == 0:
        return np.zeros(len(images), dtype=np.int64)
    if not isinstance(seeds, int):
        seeds = seeds.astype(np.int64, copy=False)
        first = int(seeds[0]) if len(seeds) else 0
        if (seeds == first).all():
            seeds = first
    if max_index < _SHORT:
        if not isinstance(seeds, int):
            out = np.empty(len(images), dtype=np.int64)
            for seed, mine in grouped(seeds):
                out[mine] = unpermute(images.take(mine), max_index, seed, rounds)
            return out
        if len(images) >= enough_for_whole(max_index):
            return _whole(max_index, seeds, rounds).take(images)
    half = half_width(max_index)
    if len(images) < _SCALAR_LIMIT:
        each = [seeds] * len(images) if isinstance(seeds, int) else seeds.tolist()
        few = zip(images.tolist(), each, strict=True)
        return np.array([unpermute_one(i, max_index, seed, rounds) for i, seed in few], np.int64)
    keys: RoundKeys
    if isinstance(seeds, int):
        keys = round_keys(seeds, rounds, half)
    else:
        keys = round_keys_for_each(seeds, rounds, half)
    return _walk_back(images.astype(np.uint64), max_index, half, keys).view(np.int64)


@lru_cache(maxsize=128)
def _whole(max_index: int, seed: int, rounds: int) -> Positions:
    return whole_permutation(max_index, seed, rounds).argsort()


def unpermute_one(image: int, max_index: int, seed: int, rounds: int = 4) -> int:
    """Returns the position of one image; the plain definition of `unpermute`.

    >>> unpermute_one(155527, max_index=10**6, seed=1)
    3
    """
    if max_index == 0:
        return 0
    half = half_width(max_index)
    if image >> 2 * half:  # 4**k + 1 positions: the last has no place in the cipher.
        return image
    keys, mask, mixed = round_keys(seed, rounds, half), (1 << half) - 1, round_values(half)
    value = image
    while True:
        left, right = value >> half, value & mask
        for i in range(len(keys) - 2, -1, -2):
            right ^= mixed[left] ^ keys[i + 1]
            left ^= mixed[right] ^ keys[i]
        value = left << half | right
        if value <= max_index:
            return value


def _walk_back(images: _Words, max_index: int, half: int, keys: RoundKeys) -> _Words:
    """Decrypts, and decrypts again those that are still out of range."""
    out = _decrypted(images, half, keys)
    if max_index >> 2 * half:  # 4**k + 1 positions: the last has no place in the cipher.
        out[images == max_index] = max_index
    outside = (out > max_index).nonzero()[0]
    while len(outside):
        if not isinstance(keys, tuple):
            keys_outside = [key.take(outside) for key in keys]
            walked = _decrypted(out.take(outside), half, keys_outside)
        else:
            walked = _decrypted(out.take(outside), half, keys)
        out[outside] = walked
        outside = outside[walked > max_index]
    return out


def _decrypted(values: _Words, half: int, keys: RoundKeys) -> _Words:
    left = (values >> np.uint64(half)).astype(np.uint32)
    right = (values & np.uint64((1 << half) - 1)).astype(np.uint32)
    for i in range(len(keys) - 2, -1, -2):
        right ^= round_function(left, half)
        right ^= np.asarray(keys[i + 1], dtype=np.uint32)
        left ^= round_function(right, half)
        left ^= np.asarray(keys[i], dtype=np.uint32)
    out: _Words = left.astype(np.uint64) << np.uint64(half)
    out |= right
    return out
