"""The permutation of a shuffle: a seeded cipher, computed position by position.

Nothing is materialised: the image of a position is arithmetic on it, so a shuffle of
10**12 records needs no memory. The permutation is a small Feistel cipher on an even
number of bits. Its domain is a power of four, so a result may lie beyond `max_index`;
then it is encrypted again ("cycle walking") until it falls inside.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Positions, distinct, distinct_and_which
from bushel.order.byte_cipher import WIDEST, encrypt_all, walk_together

Words = TypeVar("Words", npt.NDArray[np.int64], npt.NDArray[np.uint64])
# One key a round: a number for all positions, or an array with one for each.
RoundKeys: TypeAlias = "tuple[int, ...] | list[npt.NDArray[np.uint32]]"
_Table: TypeAlias = npt.NDArray[np.int64]

# Up to this half width the round function is a table (2**16 entries of two bytes, which
# stay in cache); one look-up then replaces thirteen arithmetic operations.
_WIDEST_TABLE = 16
# Up to this one there is a table for each round, with the round's key in it.
_WIDEST_KEYED_TABLE = 12
_AT_A_TIME = 8192
# The number of positions below which Python's integers are faster than numpy's call overhead, also
# for the last positions that still walk.
_SCALAR_LIMIT = 16
_FEW = 32
# The domain has at least 2**16 values, so in a small range nearly every image falls outside,
# and walking back from there takes up to thousands of steps a position. Then the whole
# permutation is made at once and kept.
_ALWAYS_WHOLE = 128
_OFTEN_WHOLE = 4096
_OFTEN = 64
# In a range of 200, walking six positions takes half as long as the whole; in 2,000, sixty.
_OFTEN_PART = 32
# The most permutations that are computed as a whole, unless a good part of each is needed.
_MOST_WHOLE = 32
_GOOD_PART = 3
# From so many on, positions of a short range walk together, each in a permutation of its own; more
# in a range below 128, where they walk longer. The last `_LAST` would keep all waiting: of those,
# and of fewer, the whole permutations take less time.
_TOGETHER = 16
_LAST = 6
# The table of steps is squared `_DOUBLED` times, then the wanted positions are advanced `_WALKED`
# steps, and again. One squaring costs as much as a hundred
# steps of a hundred positions.
_DOUBLED = 3
_WALKED = 32


def index_shuffle(index: int, max_index: int, seed: int, rounds: int) -> int:
    """Returns the image of one index under a seeded permutation of 0..max_index.

    >>> index_shuffle(3, max_index=10, seed=1, rounds=4)
    0
    """
    index, max_index = operator.index(index), operator.index(max_index)
    seed, rounds = operator.index(seed), operator.index(rounds)
    if not 0 <= index <= max_index or max_index >= 2**63:
        raise ValueError(
            f"index must be in [0, max_index], but got index = {index} and max_index = {max_index}"
        )
    if not 0 <= seed < 2**32:
        raise TypeError(f"seed must be a 32-bit integer that is not negative, but got {seed}")
    if rounds % 2 or not 4 <= rounds <= 1024:
        raise ValueError(
            f"rounds must be an even integer between 4 and 1024, but got rounds = {rounds}"
        )
    return permute_one(index, max_index, seed, rounds)


def permute(
    positions: Positions, max_index: int, seeds: int | Positions, rounds: int = 4
) -> Positions:
    """Returns the images of many positions of [0, max_index].

    `seeds` picks the permutation: one for all positions, or one for each.

    >>> sorted(permute(np.arange(5), max_index=4, seeds=7).tolist())
    [0, 1, 2, 3, 4]
    """
    if max_index == 0:
        return np.zeros(len(positions), dtype=np.int64)
    if not isinstance(seeds, int):
        seeds = seeds.astype(np.int64, copy=False)
        first = int(seeds[0]) if len(seeds) else 0
        if (seeds == first).all():  # Neighbouring positions nearly always share an epoch.
            seeds = first
    if max_index < _OFTEN_WHOLE and len(positions) >= enough_for_whole(max_index):
        images = _permute_whole(positions, max_index, seeds, rounds)
        if images is not None:
            return images
    half = half_width(max_index)
    if len(positions) < _SCALAR_LIMIT:
        few = _permute_few(positions.tolist(), max_index, seeds, rounds, half)
        return np.array(few, dtype=np.int64)
    keys: RoundKeys
    if isinstance(seeds, int):
        keys = round_keys(seeds, rounds, half)
    else:
        keys = round_keys_for_each(seeds, rounds, half)
        if max_index <= WIDEST:
            return _permute_bytes(positions, max_index, seeds, rounds, keys)
    if half <= _WIDEST_TABLE:
        return _walk(_encrypt_by_table, positions, max_index, half, keys)
    # With 64 bits, an image outside the range may need the sign bit.
    unsigned = positions.view(np.uint64)
    return _walk(_encrypt_by_arithmetic, unsigned, max_index, half, keys).view(np.int64)


def _permute_bytes(
    positions: Positions,
    max_index: int,
    seeds: Positions,
    rounds: int,
    keys: list[npt.NDArray[np.uint32]],
) -> Positions:
    images, left = walk_together(positions, max_index, keys, _round_table(8), _LAST)
    for place in left.tolist():
        whole = whole_permutation(max_index, int(seeds[place]), rounds)
        images[place] = whole[positions[place]]
    return images


def _permute_few(
    positions: list[int], max_index: int, seeds: int | Positions, rounds: int, half: int
) -> list[int]:
    if not isinstance(seeds, int):
        each = zip(positions, seeds.tolist(), strict=True)
        return [permute_one(index, max_index, seed, rounds) for index, seed in each]
    keys, last = round_keys(seeds, rounds, half), 1 << 2 * half
    return [
        _walk_one(index, max_index, half, keys) if index < last else index for index in positions
    ]


def enough_for_whole(max_index: int) -> int:
    """The number of positions of a small range that makes it worth computing the whole range."""
    return 1 if max_index < _ALWAYS_WHOLE else min(_OFTEN, max_index // _OFTEN_PART)


def _permute_whole(
    positions: Positions, max_index: int, seeds: int | Positions, rounds: int
) -> Positions | None:
    if isinstance(seeds, int):
        return _whole_permutation(max_index, seeds, rounds).take(positions)
    different, which = distinct_and_which(seeds)
    much = len(positions) * _GOOD_PART >= len(different) * (max_index + 1)
    few = len(different) <= _MOST_WHOLE and len(positions) >= min(
        _OFTEN, len(different) * enough_for_whole(max_index)
    )
    if not few and not much:
        return None  # A little of each: all of them walk together.
    enough = len(positions) * (max_index + 1) >= _TOGETHER * _ALWAYS_WHOLE
    if enough and not much and max_index < _ALWAYS_WHOLE:
        # A permutation that is wanted again will be so more often.
        again = sum(_is_wanted_again(max_index, seed, rounds) for seed in different.tolist())
        if 2 * again < len(different):
            return None
    whole = [_whole_permutation(max_index, seed, rounds) for seed in different.tolist()]
    images: Positions = np.stack(whole)[which, positions]
    return images


def _is_wanted_again(max_index: int, seed: int, rounds: int) -> bool:
    """Whether the permutation was wanted before, not longer ago than whole ones are kept."""
    before = _wanted_before(max_index, seed, rounds)
    before.append(None)
    return len(before) > 1


@lru_cache(maxsize=4 * _MOST_WHOLE)
def _wanted_before(max_index: int, seed: int, rounds: int) -> deque[None]:
    return deque(maxlen=2)


@lru_cache(maxsize=4 * _MOST_WHOLE)
def _whole_permutation(max_index: int, seed: int, rounds: int) -> Positions:
    steps = encrypt_all(round_keys(seed, rounds, 8))
    images = steps[: max_index + 1].copy()
    # One step for each value outside the range; then two, four, ... steps at a time.
    steps[: max_index + 1] = np.arange(max_index + 1)
    for _ in range(_DOUBLED):
        steps = steps.take(steps)
    while True:
        for _ in range(_WALKED):
            images = steps.take(images)
        if (images <= max_index).all():
            return images
        steps = steps.take(steps)


def _walk(
    encrypt: Callable[[Words, int, "RoundKeys", Words], None],
    values: Words,
    max_index: int,
    half: int,
    keys: "RoundKeys",
) -> Words:
    """Encrypts, and encrypts again those that are still out of range."""
    out = np.empty_like(values)
    encrypt(values, half, keys, out)
    if max_index >> 2 * half:  # 4**k + 1 positions: the last has no place in the cipher.
        out[values == max_index] = max_index
    # Each walk is of the positions that the walk before left outside; their images are put in place
    # afterwards, from the last walk to the first.
    walks = [out]
    places: list[npt.NDArray[np.intp]] = []
    while len(outside := (walks[-1] > max_index).nonzero()[0]):
        walking, keys = walks[-1].take(outside), _take_keys(keys, outside)
        places.append(outside)
        if len(outside) < _FEW:
            keys_of_each: Iterable[tuple[int, ...]] = (
                [keys] * len(outside)
                if isinstance(keys, tuple)
                else zip(*(key.tolist() for key in keys), strict=True)
            )
            few = zip(walking.tolist(), keys_of_each, strict=True)
            ends = [_walk_one(value, max_index, half, mine) for value, mine in few]
            walks.append(np.array(ends, dtype=out.dtype))
            break
        encrypt(walking, half, keys, walking)
        walks.append(walking)
    while places:
        walked = walks.pop()
        walks[-1][places.pop()] = walked
    return out


def permute_one(index: int, max_index: int, seed: int, rounds: int = 4) -> int:
    """Returns the image of one position; the plain definition of `permute`.

    >>> [permute_one(i, 4, seed=7) for i in range(5)] == permute(np.arange(5), 4, 7).tolist()
    True
    """
    if max_index == 0:
        return 0
    half = half_width(max_index)
    if index >> 2 * half:  # 4**k + 1 positions: the last has no place in the cipher.
        return index
    return _walk_one(index, max_index, half, round_keys(seed, rounds, half))


def _walk_one(value: int, max_index: int, half: int, keys: tuple[int, ...]) -> int:
    mask, mixed = (1 << half) - 1, round_values(half)
    while True:
        left, right = value >> half, value & mask
        for i in range(0, len(keys), 2):
            left ^= mixed[right] ^ keys[i]
            right ^= mixed[left] ^ keys[i + 1]
        value = left << half | right
        if value <= max_index:
            return value


@lru_cache(maxsize=32)
def round_values(half: int) -> "list[int] | memoryview[int] | _Rounds":
    """The round function as a lookup, with Python's integers."""
    if half > _WIDEST_TABLE:
        return _Rounds(half)
    table = _round_table(half)
    return table.tolist() if half <= _WIDEST_KEYED_TABLE else table.data


class _Rounds:
    """The round function of words that are too wide for a table."""

    def __init__(self, half: int) -> None:
        self._half, self._mask = half, (1 << half) - 1

    def __getitem__(self, x: int) -> int:
        half, mask = self._half, self._mask
        by1 = (x << 1 | x >> (half - 1)) & mask
        by8 = (x << 8 | x >> (half - 8)) & mask
        by2 = (x << 2 | x >> (half - 2)) & mask
        return (by1 & by8) ^ by2


def half_width(max_index: int) -> int:
    """The number of bits in half a value of the cipher, for a range."""
    # ceil(log2(max_index)), rounded up to an even number, within 16..64.
    bits = (max_index - 1).bit_length()
    bits += bits % 2
    return min(max(bits, 16), 64) // 2


def _encrypt_by_table(values: Positions, half: int, keys: RoundKeys, out: Positions) -> None:
    # All in int64, the type that `take` wants: narrower words would be widened by every call.
    # A few thousand at a time, so that all rounds find their words in the first cache. The
    # values are in range by construction, so "clip" only spares numpy the check.
    scratch, left = np.empty((2, min(len(values), _AT_A_TIME)), dtype=np.int64)
    tables = _keyed_tables(half, keys) if isinstance(keys, tuple) else None
    for start in range(0, len(values), _AT_A_TIME):
        part, right = values[start : start + _AT_A_TIME], out[start : start + _AT_A_TIME]
        if len(part) < len(left):
            scratch, left = scratch[: len(part)], left[: len(part)]
        np.right_shift(part, half, left)
        np.bitwise_and(part, (1 << half) - 1, right)
        if tables is not None:
            for odd, even in tables:
                odd.take(right, None, scratch, "clip")
                left ^= scratch
                even.take(left, None, scratch, "clip")
                right ^= scratch
            continue
        table = _round_table(half)
        for i in range(0, len(keys), 2):
            table.take(right, None, scratch, "clip")
            left ^= scratch
            left ^= _part(keys[i], start)
            table.take(left, None, scratch, "clip")
            right ^= scratch
            right ^= _part(keys[i + 1], start)
        left <<= half
        right |= left


def _part(key: "int | npt.NDArray[np.uint32]", start: int) -> "int | npt.NDArray[np.uint32]":
    return key if isinstance(key, int) else key[start : start + _AT_A_TIME]


@lru_cache(maxsize=16)
def _keyed_tables(half: int, keys: tuple[int, ...]) -> "tuple[tuple[_Table, _Table], ...] | None":
    """The round function with each round's key, if the tables are small enough for that.

    The last table contains the left half of the result as well: its own index.
    """
    if half > _WIDEST_KEYED_TABLE:
        return None
    table = _round_table(half)
    *tables, last = (table ^ key for key in keys)
    last |= np.arange(1 << half) << half
    return tuple(zip(tables[::2], [*tables[1::2], last], strict=True))


def _encrypt_by_arithmetic(
    values: npt.NDArray[np.uint64], half: int, keys: RoundKeys, out: npt.NDArray[np.uint64]
) -> None:
    left = (values >> np.uint64(half)).astype(np.uint32)
    right = (values & np.uint64((1 << half) - 1)).astype(np.uint32)
    for i in range(0, len(keys), 2):
        left ^= round_function(right, half)
        left ^= np.asarray(keys[i], dtype=np.uint32)
        right ^= round_function(left, half)
        right ^= np.asarray(keys[i + 1], dtype=np.uint32)
    # Explicit, as numpy 1 would shift words of 32 bits for a small number of bits.
    np.left_shift(left, np.uint64(half), out, dtype=np.uint64)
    out |= right


def round_function(x: npt.NDArray[np.uint32], half: int) -> npt.NDArray[np.uint32]:
    """A round for half a value; the round's key is an argument of the result."""
    return (_rotate(x, 1, half) & _rotate(x, 8, half)) ^ _rotate(x, 2, half)


def _rotate(x: npt.NDArray[np.uint32], by: int, half: int) -> npt.NDArray[np.uint32]:
    by %= half
    turned = (x << np.uint32(by)) | (x >> np.uint32(half - by)) if by else x.copy()
    turned &= np.uint32((1 << half) - 1)
    return turned


@lru_cache(maxsize=32)
def _round_table(half: int) -> npt.NDArray[np.int64]:
    return round_function(np.arange(1 << half, dtype=np.uint32), half).astype(np.int64)


@lru_cache(maxsize=1024)
def round_keys(seed: int, rounds: int, half: int) -> tuple[int, ...]:
    """The keys of all rounds, for one seed."""
    return tuple(word & (1 << half) - 1 for word in _seed_words(seed, rounds))


def round_keys_for_each(seeds: Positions, rounds: int, half: int) -> list[npt.NDArray[np.uint32]]:
    """The keys of all rounds, for each of many seeds."""
    different, which = distinct_and_which(seeds)
    words = _seed_words(different.astype(np.uint64), rounds)
    mask = np.uint64((1 << half) - 1)
    return [(word & mask).astype(np.uint32).take(which) for word in words]


def _take_keys(keys: RoundKeys, indices: npt.NDArray[np.intp]) -> RoundKeys:
    return keys if isinstance(keys, tuple) else [key.take(indices) for key in keys]


def _seed_words(seeds: Any, count: int) -> list[Any]:
    """Generates `count` words as C++'s `std::seed_seq` does from one 32-bit word.

    `seed` is an int, or an array of many: then each word is an array with one entry a seed. Sums
    and products in arrays wrap at 64 bits, which leaves the lowest 32 bits right.
    """
    low = 0xFFFFFFFF
    out = [seeds * 0 + 0x8B8B8B8B for _ in range(count)]
    lag = (
        11 if count >= 623 else 7 if count >= 68 else 5 if count >= 39
        else 3 if count >= 7 else (count - 1) // 2
    )  # fmt: skip
    near = (count - lag) // 2
    far = near + lag
    steps = max(2, count)

    for k in range(steps):
        here, ahead, further, before = (x % count for x in (k, k + near, k + far, k - 1))
        mixed = out[here] ^ out[ahead] ^ out[before]
        add = (mixed ^ (mixed >> 27)) * 1664525
        total = add + (1 if k == 0 else here)
        if k == 1:
            total = total + seeds
        out[ahead] = (out[ahead] + add) & low
        out[further] = (out[further] + total) & low
        out[here] = total & low
    for k in range(steps, 2 * steps):
        here, ahead, further, before = (x % count for x in (k, k + near, k + far, k - 1))
        mixed = (out[here] + out[ahead] + out[before]) & low
        add = (mixed ^ (mixed >> 27)) * 1566083941
        total = add - here
        out[ahead] = out[ahead] ^ (add & low)
        out[further] = out[further] ^ (total & low)
        out[here] = total & low
    return out


def permute_each(
    positions: Positions, max_indices: Positions, seeds: Positions, rounds: int = 4
) -> Positions:
    """Returns the images of positions, each of which has a range of its own.

    `seeds` has one for each position, too.

    >>> permute_each(np.array([3, 3]), np.array([10, 10**6]), np.array([1, 1])).tolist()
    [0, 155527]
    """
    halves = half_widths(max_indices)
    out = np.empty(len(positions), dtype=np.int64)
    for half in distinct(halves).tolist():
        mine = (halves == half).nonzero()[0]
        values, most = positions.take(mine), max_indices.take(mine)
        keys = round_keys_for_each(seeds.take(mine), rounds, half)
        if half <= _WIDEST_TABLE:
            out[mine] = _walk_each(_encrypt_by_table, values, most, half, keys)
        else:
            unsigned = values.view(np.uint64), most.view(np.uint64)
            walked = _walk_each(_encrypt_by_arithmetic, *unsigned, half, keys)
            out[mine] = walked.view(np.int64)
    return out


def half_widths(max_indices: Positions) -> Positions:
    """The number of bits in half a value of the cipher, for each of many ranges."""
    different, which = distinct_and_which(max_indices)
    widths = np.array([half_width(most) for most in different.tolist()], dtype=np.int64)
    return widths.take(which)


def _walk_each(
    encrypt: Callable[[Words, int, "RoundKeys", Words], None],
    values: Words,
    max_indices: Words,
    half: int,
    keys: "list[npt.NDArray[np.uint32]]",
) -> Words:
    out = np.empty_like(values)
    encrypt(values, half, keys, out)
    if 2 * half < 63:  # 4**k + 1 positions: the last has no place in the cipher.
        last = (values == max_indices) & (values == 1 << 2 * half)
        out[last] = max_indices[last]
    outside = (out > max_indices).nonzero()[0]
    walking, most = out.take(outside), max_indices.take(outside)
    keys = [key.take(outside) for key in keys]
    while len(outside) >= _FEW:
        encrypt(walking, half, keys, walking)
        out[outside] = walking
        still_out = (walking > most).nonzero()[0]
        outside, walking = outside.take(still_out), walking.take(still_out)
        most, keys = most.take(still_out), [key.take(still_out) for key in keys]
    if len(outside):
        keys_of_each = zip(*(key.tolist() for key in keys), strict=True)
        few = zip(walking.tolist(), most.tolist(), keys_of_each, strict=True)
        out[outside] = [_walk_one(value, last, half, mine) for value, last, mine in few]
    return out


def whole_permutation(max_index: int, seed: int, rounds: int = 4) -> Positions:
    """Returns the images of all of a short range, in one array.

    >>> whole_permutation(4, seed=7).tolist() == permute(np.arange(5), 4, 7).tolist()
    True
    """
    if not max_index:
        return np.zeros(1, dtype=np.int64)
    made: Positions = _whole_permutation.__wrapped__(max_index, seed, rounds)
    return made
