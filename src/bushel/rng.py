"""Random numbers from a seed and a position; no state is hidden anywhere.

Every record gets a generator of its own. To make one costs ten times what most functions
then do with it, so a few are kept and wound to the place where a fresh one would start.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from functools import lru_cache
from sys import getrefcount
from typing import Any

import numpy as np


def derived_seed(entropy: list[int]) -> int:
    """Condenses seeds and depths into one 32-bit seed.

    >>> derived_seed([42, 1])
    3329053876
    """
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])


_END = 2**64
# How often a generator is referred to while nobody but this module has it: by its `_Philox`,
# by the variable, and by the call that counts.
_UNSHARED = 3


class PositionGenerators:
    """Generators over one seed, a stream of numbers of its own for each position.

    >>> [rng.integers(1000) for rng in PositionGenerators(seed=5).each([0, 1, 0])]
    [np.int64(864), np.int64(504), np.int64(864)]
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._idle: list[_Philox] = []

    def each(self, positions: Iterable[int]) -> Iterator[np.random.Generator]:
        """Yields a generator for each position; it is good until the next one is taken."""
        # A list's pop and append are atomic, so threads may share this object. A function
        # that reads from the same dataset again simply gets another generator.
        philox = self._idle.pop() if self._idle else _Philox(np.random.Philox(self._seed))
        wind, generator = philox.wind_counter, philox.generator
        try:
            for position in positions:
                if not 0 <= position < _END:
                    raise OverflowError(
                        f"random operations need positions from 0 to 2**64, and got {position}."
                    )
                wind(position)
                yield generator
                if getrefcount(generator) > _UNSHARED:
                    # Somebody kept it, and may go on drawing from it.
                    philox = _Philox(np.random.Philox(self._seed))
                    wind, generator = philox.wind_counter, philox.generator
        finally:
            if getrefcount(generator) <= _UNSHARED:
                self._idle.append(philox)

    def __reduce__(self) -> tuple[Any, ...]:
        return PositionGenerators, (self._seed,)


class KeyedGenerators:
    """Generators keyed by `seed + index`, as samplers hand them out.

    >>> [rng.integers(1000) for rng in KeyedGenerators(seed=5).each([0, 1, 0])]
    [np.int64(206), np.int64(208), np.int64(206)]
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._idle: list[_Philox] = []

    def each(self, indices: Iterable[int]) -> Iterator[np.random.Generator]:
        """Yields a generator for each index; it is good until the next one is taken."""
        philox = self._idle.pop() if self._idle else _Philox(np.random.Philox(key=self._seed))
        wind, generator, seed = philox.wind_key, philox.generator, self._seed
        try:
            for index in indices:
                wind(seed + index)
                yield generator
                if getrefcount(generator) > _UNSHARED:
                    philox = _Philox(np.random.Philox(key=seed))
                    wind, generator = philox.wind_key, philox.generator
        finally:
            if getrefcount(generator) <= _UNSHARED:
                self._idle.append(philox)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyedGenerators, (self._seed,)


class RngPool:
    """A pool of generators that are wound to an index when they are taken.

    >>> pool = RngPool(seed=3)
    >>> rng = pool.acquire_rng(5)
    >>> first = rng.random()
    >>> pool.release_rng(rng)
    >>> pool.acquire_rng(5).random() == first
    True
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._idle: list[np.random.Generator] = []

    def acquire_rng(self, index: int, *, op_seed: int = 0) -> np.random.Generator:
        """Takes a generator for an index."""
        if not 0 <= index < 2**64:
            raise OverflowError(f"an index must fit in 64 bits without sign, and is {index}.")
        rng = self._idle.pop() if self._idle else np.random.Generator(np.random.Philox(self._seed))
        state: Any = rng.bit_generator.state
        state["state"]["counter"][:] = (0, 0, op_seed, index)
        state.update(buffer_pos=4, has_uint32=0, uinteger=0)
        rng.bit_generator.state = state
        return rng

    def release_rng(self, rng: np.random.Generator) -> None:
        """Gives a generator back."""
        self._idle.append(rng)


def generator_for_key(key: int) -> np.random.Generator:
    """Makes a generator that the caller may keep."""
    return np.random.Generator(np.random.Philox(key=key))


class _Philox:
    """A Philox generator that can be wound to a counter or a key.

    numpy's way to do it, assigning a dict to `state`, takes over a microsecond. Writing the
    few words that change into numpy's state takes a tenth of that, through the address that
    numpy publishes for such uses. The layout behind that address is checked once by
    `_layout_is_known`; where it is not as expected, numpy's own way is taken.
    """

    __slots__ = ("_bits", "_counter", "_flags", "_key", "_state", "generator")

    def __init__(self, bits: np.random.Philox) -> None:
        self._bits = bits
        self.generator = np.random.Generator(bits)
        self._state: Any = None
        if _layout_is_known():
            self._flags, self._counter, self._key = _words(bits)
        else:
            self._state = bits.state

    def wind_counter(self, last: int) -> None:
        """Sets the counter to [0, 0, 0, last] and forgets what was drawn before."""
        if self._state is None:
            counter = self._counter
            counter[0] = counter[1] = counter[2] = 0
            counter[3] = last
            self._forget()
        else:
            self._state["state"]["counter"][:] = (0, 0, 0, last)
            self._bits.state = self._state

    def wind_key(self, key: int) -> None:
        """Sets the key to [key, 0], the counter to 0, and forgets what was drawn before."""
        if self._state is None:
            self._key[0] = key
            self._key[1] = key >> 64
            counter = self._counter
            counter[0] = counter[1] = counter[2] = counter[3] = 0
            self._forget()
        else:
            low, high = key & 0xFFFFFFFFFFFFFFFF, key >> 64
            self._state["state"]["key"][:] = (low, high)
            self._state["state"]["counter"][:] = 0
            self._bits.state = self._state

    def _forget(self) -> None:
        flags = self._flags
        flags[_BUFFER_POS] = 4
        flags[_HAS_UINT32] = 0
        flags[_UINTEGER] = 0


# numpy's philox_state: two pointers (counter, key), an int, padding, four 64-bit words of
# buffer, an int and an unsigned int; here as 32-bit words.
_BUFFER_POS, _HAS_UINT32, _UINTEGER, _STATE_WORDS = 4, 14, 15, 16


def _words(bits: np.random.Philox) -> tuple[Any, Any, Any]:
    address = bits.ctypes.state_address
    flags = (ctypes.c_uint32 * _STATE_WORDS).from_address(address)
    counter_at, key_at = (ctypes.c_uint64 * 2).from_address(address)
    # Both lie in the same object, right behind; anything else is no pointer of ours.
    for pointer in (counter_at, key_at):
        if not 64 <= pointer - address <= 256 or pointer % 8:
            raise ValueError("an unknown layout of numpy's Philox state")
    counter = (ctypes.c_uint64 * 4).from_address(counter_at)
    key = (ctypes.c_uint64 * 2).from_address(key_at)
    return flags, counter, key


@lru_cache(maxsize=1)
def _layout_is_known() -> bool:
    bits = np.random.Philox(key=[0x1122334455667788, 77], counter=[3, 0, 0, 9])
    drawn = np.random.Generator(bits)
    drawn.random()
    drawn.integers(0, 2**32, dtype=np.uint32)
    try:
        flags, counter, key = _words(bits)
    except ValueError:
        return False
    state: Any = bits.state
    return bool(
        list(counter) == state["state"]["counter"].tolist()
        and list(key) == state["state"]["key"].tolist()
        and flags[_BUFFER_POS] == state["buffer_pos"] == 2
        and flags[_HAS_UINT32] == state["has_uint32"] == 1
        and flags[_UINTEGER] == state["uinteger"] != 0
    )
