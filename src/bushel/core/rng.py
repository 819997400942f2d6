"""Random numbers from a seed and a position; no state is hidden anywhere.

Every record gets a generator of its own. To make one costs ten times what most functions
then do with it, so a few are kept and wound to the place where a fresh one would start.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from sys import getrefcount
from typing import Any, TypeAlias

import numpy as np


def derived_seed(entropy: list[int]) -> int:
    """Condenses seeds and depths into one 32-bit seed.

    >>> derived_seed([42, 1])
    3329053876
    """
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])


# In quotes: numpy's generators are imported when one is made.
Function: TypeAlias = "Callable[[Any, np.random.Generator], Any]"
_LOW = 2**64 - 1
# How often a generator is referred to while nobody but this module has it: by its `_Philox`,
# by the variable, and by the call that counts.
_UNSHARED = 3


class PositionGenerators:
    """Generators over one seed, a stream of numbers of its own for each position.

    >>> draw = lambda row, rng: (row, int(rng.integers(1000)))
    >>> list(PositionGenerators(seed=5).results(draw, "abc", [0, 1, 0]))
    [('a', 864), ('b', 504), ('c', 864)]
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._idle: list[_Philox] = []

    def results(
        self, function: Function, rows: Iterable[Any], positions: Sequence[int]
    ) -> Iterator[Any]:
        """Calls a function with each row and the generator of its position.

        A StopIteration of the function's ends it, as it ends `map`.
        """
        # A list's pop and append are atomic, so threads may share this object. A function
        # that reads from the same dataset again simply gets another generator.
        philox = self._idle.pop() if self._idle else self._another()
        wind, words, generator = philox.wind, philox.words, philox.generator
        start = philox.start
        try:
            for row, position in zip(rows, positions, strict=False):
                try:
                    wind(words, _BUFFER_POS, start, position)
                except struct.error as wrong:
                    raise OverflowError(
                        f"random operations need positions from 0 to 2**64, and got {position}."
                    ) from wrong
                yield function(row, generator)
                if getrefcount(generator) > _UNSHARED:
                    # Somebody kept it, and may go on drawing from it.
                    philox = self._another()
                    wind, words, generator = philox.wind, philox.words, philox.generator
        except StopIteration:
            return
        finally:
            if getrefcount(generator) <= _UNSHARED:
                self._idle.append(philox)

    def _another(self) -> _Philox:
        return _Philox(np.random.Philox(self._seed))

    def __reduce__(self) -> tuple[Any, ...]:
        return PositionGenerators, (self._seed,)


class KeyedGenerators:
    """Generators keyed by `seed + index`, as samplers hand them out.

    >>> draw = lambda row, rng: (row, int(rng.integers(1000)))
    >>> list(KeyedGenerators(seed=5).results(draw, "abc", [0, 1, 0]))
    [('a', 206), ('b', 208), ('c', 206)]
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._idle: list[_Philox] = []

    def results(
        self, function: Function, rows: Iterable[Any], indices: Sequence[int]
    ) -> Iterator[Any]:
        """Calls a function with each row and the generator of its index; else as above."""
        philox = self._idle.pop() if self._idle else self._another()
        wind, words, generator = philox.wind_key, philox.words, philox.generator
        seed = self._seed
        try:
            for row, index in zip(rows, indices, strict=False):
                key = seed + index
                wind(words, _BUFFER_POS, 4, key & _LOW, key >> 64)
                yield function(row, generator)
                if getrefcount(generator) > _UNSHARED:
                    philox = self._another()
                    wind, words, generator = philox.wind_key, philox.words, philox.generator
        except StopIteration:
            return
        finally:
            if getrefcount(generator) <= _UNSHARED:
                self._idle.append(philox)

    def _another(self) -> _Philox:
        return _Philox(np.random.Philox(key=self._seed))

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


# What lies behind the address that numpy publishes, in bytes: two pointers (to counter and
# key), the place in the buffer, the buffer of four words, whether half a word is left and
# which, the key and the counter.
_BUFFER_POS, _KEY, _COUNTER, _STATE_BYTES = 16, 64, 80, 112
# From the place in the buffer to the end. What is skipped is set to zero: an empty buffer,
# nothing left over, and words of the counter.
_wind_key_words = struct.Struct("=i44xQQ32x").pack_into
# The same where all but the last word of the counter was put together before.
_start_of = struct.Struct("=i44xQQ24x").pack
_wind_words = struct.Struct("=88sQ").pack_into


class _Philox:
    """A Philox generator that can be wound to a key or a counter.

    numpy's way to do it, assigning a dict to `state`, takes over a microsecond. Writing the
    words into numpy's state takes a tenth of that. The layout of that state is checked once
    by `_layout_is_known`; where it is not as expected, numpy's own way is taken.
    """

    __slots__ = ("generator", "start", "wind", "wind_key", "words")

    def __init__(self, bits: np.random.Philox) -> None:
        self.generator = np.random.Generator(bits)
        state: Any = bits.state
        low, high = map(int, state["state"]["key"])
        # `wind(words, _BUFFER_POS, start, last_word_of_counter)`
        self.wind: Callable[..., None]
        # `wind_key(words, _BUFFER_POS, 4, low_key, high_key)`
        self.wind_key: Callable[..., None]
        self.words: Any
        self.start: Any
        if _layout_is_known():
            self.wind, self.wind_key = _wind_words, _wind_key_words
            self.words, self.start = _bytes_of(bits), _start_of(4, low, high)
        else:
            self.wind, self.wind_key = _wind_by_state, _wind_key_by_state
            self.words, self.start = bits, (low, high)


def _wind_by_state(bits: np.random.Philox, _offset: int, start: tuple[int, int], last: int) -> None:
    low, high = start
    if not 0 <= last < 2**64 or not 0 <= low < 2**64 or not 0 <= high < 2**64:
        raise struct.error("a word of Philox has 64 bits")
    state: Any = bits.state
    state["state"]["key"][:] = (low, high)
    state["state"]["counter"][:] = (0, 0, 0, last)
    state.update(buffer_pos=4, has_uint32=0, uinteger=0)
    bits.state = state


def _wind_key_by_state(
    bits: np.random.Philox, offset: int, _buffer_pos: int, low: int, high: int
) -> None:
    _wind_by_state(bits, offset, (low, high), 0)


def _bytes_of(bits: np.random.Philox) -> Any:
    """The bytes of a generator's state, as a buffer to write to."""
    address = bits.ctypes.state_address
    counter_at, key_at = (ctypes.c_uint64 * 2).from_address(address)
    # Both lie in the same object, right after; anything else is no pointer of ours.
    if (counter_at - address, key_at - address) != (_COUNTER, _KEY):
        raise ValueError("an unknown layout of numpy's Philox state")
    return (ctypes.c_ubyte * _STATE_BYTES).from_address(address)


@lru_cache(maxsize=1)
def _layout_is_known() -> bool:
    """Winds one generator both ways, and tells whether the two came to the same place."""
    low, high, last = 0x1122334455667788, 77, 2**63 + 9
    known, tried = (np.random.Philox(key=[5, 6], counter=[1, 2, 3, 4]) for _ in range(2))
    for bits in (known, tried):
        # So that there is something in the buffer, and half a word left over.
        np.random.Generator(bits).random()
        np.random.Generator(bits).integers(0, 2**32, dtype=np.uint32)
    try:
        words = _bytes_of(tried)
        # Read before anything is written: is everything where it should be?
        at = struct.unpack_from("=i36xiIQQ4Q", words, _BUFFER_POS)
        state: Any = known.state
        here = (state["buffer_pos"], state["has_uint32"], state["uinteger"])
        if at != (*here, *map(int, state["state"]["key"]), *map(int, state["state"]["counter"])):
            return False
        _wind_words(words, _BUFFER_POS, _start_of(4, low, high), last)
    except (ValueError, struct.error):
        return False
    _wind_by_state(known, _BUFFER_POS, (low, high), last)
    one, other = (np.random.Generator(bits).integers(0, 2**63, 9) for bits in (known, tried))
    return bool((one == other).all())
