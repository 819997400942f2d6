"""Random generators made from a seed and a position, without hidden state.

Every record gets a generator of its own. Making a generator takes ten times as long as most
functions that use it, so a few are kept, and each is set to the state that a fresh one would have.
"""

from __future__ import annotations

import ctypes
import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import islice
from operator import attrgetter
from sys import getrefcount
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Positions

_log = logging.getLogger("bushel")


# In quotes: numpy's generators are imported when one is made.
Function: TypeAlias = "Callable[[Any, np.random.Generator], Any]"
# The states of some generators, as consecutive bytes.
Places: TypeAlias = bytes | memoryview
_LOW = 2**64 - 1
# References to a generator that no other code has: its `_Philox`, the variable, and the call that
# counts.
_UNSHARED = 3
# The number of states written together, as that takes numpy some calls. A few are written one by
# one.
_AT_ONCE, _FEW = 1024, 8


class Generators(ABC):
    """Generators with one seed, each set to the state of a record when its turn comes.

    The states of many records are written together; so there is no arithmetic between two calls of
    a function, and one call that copies bytes sets a generator.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._idle: list[_Philox] = []

    def results(
        self, function: Function, rows: Iterable[Any], numbers: Positions | Sequence[int]
    ) -> Iterator[Any]:
        """Calls a function with each row and the generator of its position or index.

        A StopIteration of the function ends it, as it ends `map`.
        """
        # A list's pop and append are atomic, so threads may share this object. If the function
        # reads from the same dataset again, it simply gets another generator.
        philox = self._idle.pop() if self._idle else _Philox(self._bits())
        words, generator = philox.words, philox.generator
        left = iter(rows)
        try:
            for some in _in_pieces(numbers):
                count = _how_many_fit(some)
                places = BytesIO(self._places(some if count == len(some) else some[:count]))
                wind = philox.winder(places)
                for row in islice(left, count):
                    wind(words)
                    yield function(row, generator)
                    if getrefcount(generator) > _UNSHARED:
                        # The function kept the generator, and may go on drawing from it.
                        philox = _Philox(self._bits())
                        words, generator = philox.words, philox.generator
                        wind = philox.winder(places)
                if count < len(some):
                    raise OverflowError(
                        "random operations need positions from 0 to 2**64, and got "
                        f"{int(some[count])}."
                    )
        except StopIteration:
            return
        finally:
            if getrefcount(generator) <= _UNSHARED:
                self._idle.append(philox)

    @abstractmethod
    def _bits(self) -> np.random.Philox:
        """Makes one more bit generator."""

    @abstractmethod
    def _places(self, numbers: Positions | Sequence[int]) -> Places:
        """The states of generators, one after the other, as `_place_of` writes them."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._seed,)


class PositionGenerators(Generators):
    """Generators with one seed, and an independent stream of random numbers for each position.

    >>> draw = lambda row, rng: (row, int(rng.integers(1000)))
    >>> list(PositionGenerators(seed=5).results(draw, "abc", [0, 1, 0]))
    [('a', 864), ('b', 504), ('c', 864)]
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        # All of a state except its last word.
        self._start = b""

    def _bits(self) -> np.random.Philox:
        return np.random.Philox(self._seed)

    def _places(self, numbers: Positions | Sequence[int]) -> Places:
        if not self._start:
            state: Any = self._bits().state
            self._start = _place_of(*map(int, state["state"]["key"]))[:-8]
        if len(numbers) == 1:
            return _place_after(self._start, numbers[0])
        if len(numbers) <= _FEW:
            return b"".join([_place_after(self._start, number) for number in numbers])
        words = _words_of(_place_after(self._start, 0), len(numbers))
        words[:, _LAST_WORD] = numbers
        return words.data


class KeyedGenerators(Generators):
    """Generators keyed by `seed + index`, as samplers make them.

    >>> draw = lambda row, rng: (row, int(rng.integers(1000)))
    >>> list(KeyedGenerators(seed=5).results(draw, "abc", [0, 1, 0]))
    [('a', 206), ('b', 208), ('c', 206)]
    """

    def _bits(self) -> np.random.Philox:
        return np.random.Philox(key=self._seed)

    def _places(self, numbers: Positions | Sequence[int]) -> Places:
        if len(numbers) <= _FEW or self._seed > _LOW:
            keys = [self._seed + int(number) for number in numbers]
            return b"".join([_place_of(key & _LOW, key >> 64) for key in keys])
        words = _words_of(_place_of(0, 0), len(numbers))
        low, high = words[:, _KEY_WORD], words[:, _KEY_WORD + 1]
        low[:] = numbers
        low += np.uint64(self._seed)  # It wraps around,
        high[:] = low < self._seed  # and this is the carry.
        return words.data


def _in_pieces(numbers: Positions | Sequence[int]) -> Sequence[Positions | Sequence[int]]:
    """Numbers in pieces; a few numbers as a list, since numpy takes longer for those."""
    size = len(numbers)
    if 0 < size <= _FEW and isinstance(numbers, np.ndarray):
        return (numbers.tolist(),)
    if 0 < size <= _AT_ONCE:
        return (numbers,)
    return [numbers[start : start + _AT_ONCE] for start in range(0, size, _AT_ONCE)]


def _how_many_fit(numbers: Positions | Sequence[int]) -> int:
    """The count of numbers up to the first that does not fit into 64 bits."""
    if len(numbers) == 1:
        return int(0 <= numbers[0] <= _LOW)
    if isinstance(numbers, np.ndarray):
        if numbers.dtype == np.int64 and numbers.min() >= 0:
            return len(numbers)
    elif min(numbers) >= 0 and max(numbers) <= _LOW:
        return len(numbers)
    for count, number in enumerate(numbers):
        if not 0 <= int(number) <= _LOW:
            return count
    return len(numbers)


class RngPool:
    """A pool of generators that are set to an index when they are taken.

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


# Layout in bytes of the state at the address that numpy publishes: two pointers (to counter and
# key), the position in the buffer, the buffer of four words, whether half a word is left and which,
# the key and the counter.
_BUFFER_POS, _KEY, _COUNTER, _STATE_BYTES = 16, 64, 80, 112
# The part from the position in the buffer on is a start state: an empty buffer, no half word, the
# key, and a counter whose last word is the position.
_place = struct.Struct("=i36xiIQQ4Q")
_WORDS = _place.size // 8
_KEY_WORD, _LAST_WORD = (_KEY - _BUFFER_POS) // 8, _WORDS - 1


# The beginning of a start state, and the last word of its counter.
_place_after = struct.Struct("=88sQ").pack


def _place_of(low: int, high: int, last: int = 0) -> bytes:
    return _place.pack(4, 0, 0, low, high, 0, 0, 0, last)


def _words_of(place: bytes, count: int) -> npt.NDArray[np.uint64]:
    """An array of so many rows, each with the words of this state."""
    words = np.empty((count, _WORDS), dtype=np.uint64)
    words[:] = np.frombuffer(place, dtype=np.uint64)
    return words


class _Philox:
    """A Philox generator that can be set to a start state.

    numpy's own way, assigning a dict to `state`, takes over a microsecond. Writing the words into
    numpy's state takes a fortieth of that. `_layout_is_known` checks the layout of that state once;
    if it is not as expected, numpy's own way is used.
    """

    __slots__ = ("generator", "winder", "words")

    def __init__(self, bits: np.random.Philox) -> None:
        self.generator = np.random.Generator(bits)
        # `winder(states)(words)` sets it to the next of these states.
        self.winder: Callable[[BytesIO], Callable[[Any], Any]]
        self.words: Any
        if _layout_is_known():
            self.winder, self.words = attrgetter("readinto"), _bytes_of(bits)
        else:
            self.winder, self.words = _winder_by_state, bits


def _winder_by_state(places: BytesIO) -> Callable[[np.random.Philox], None]:
    def wind(bits: np.random.Philox) -> None:
        _, _, _, low, high, *counter = _place.unpack(places.read(_place.size))
        state: Any = bits.state
        state["state"]["key"][:] = (low, high)
        state["state"]["counter"][:] = counter
        state.update(buffer_pos=4, has_uint32=0, uinteger=0)
        bits.state = state

    return wind


def _bytes_of(bits: np.random.Philox) -> memoryview:
    """The bytes of a generator's state that hold the start state, to write to."""
    address = bits.ctypes.state_address
    counter_at, key_at = (ctypes.c_uint64 * 2).from_address(address)
    # Both pointers must point right after this state; any other values are no such pointers.
    if (counter_at - address, key_at - address) != (_COUNTER, _KEY):
        raise ValueError("an unknown layout of numpy's Philox state")
    state = (ctypes.c_ubyte * _STATE_BYTES).from_address(address)
    return memoryview(state).cast("B")[_BUFFER_POS:]


@lru_cache(maxsize=1)
def _layout_is_known() -> bool:
    """Sets one generator both ways, and tells whether the results are the same."""
    if _are_wound_alike():
        return True
    _log.warning(
        "numpy %s keeps the state of its generators in a way that bushel does not know: random "
        "maps take a microsecond more for each record.",
        np.__version__,
    )
    return False


def _are_wound_alike() -> bool:
    place = _place_of(0x1122334455667788, 77, 2**63 + 9)
    known, tried = (np.random.Philox(key=[5, 6], counter=[1, 2, 3, 4]) for _ in range(2))
    for bits in (known, tried):
        # So that the buffer is not empty, and half a word is left.
        np.random.Generator(bits).random()
        np.random.Generator(bits).integers(0, 2**32, dtype=np.uint32)
    try:
        words = _bytes_of(tried)
    except ValueError:
        return False
    # Read before anything is written: is everything in its place?
    state: Any = known.state
    here = (state["buffer_pos"], state["has_uint32"], state["uinteger"])
    there = (*here, *map(int, state["state"]["key"]), *map(int, state["state"]["counter"]))
    if _place.unpack(words) != there:
        return False
    BytesIO(place).readinto(words)
    _winder_by_state(BytesIO(place))(known)
    one, other = (np.random.Generator(bits).integers(0, 2**63, 9) for bits in (known, tried))
    return bool((one == other).all())
