"""`derived_seed`: makes one seed of several numbers, as numpy's `SeedSequence` does.

To import numpy's random generators takes longer than all the rest of building a pipeline, and
where there are workers they are not started before that.
"""

from collections.abc import Callable

_WORD, _POOL = 0xFFFFFFFF, 4


def derived_seed(entropy: list[int]) -> int:
    """Condenses seeds and depths into one 32-bit seed.

    >>> derived_seed([42, 1])
    3329053876
    """
    words = [word for number in entropy for word in _seed_words(number)]
    hashed = _hashing(0x43B0D7E5, 0x931E8875)
    pool = [hashed(word) for word in (words + [0] * _POOL)[:_POOL]]
    for source in range(_POOL):
        for place in range(_POOL):
            if place != source:
                pool[place] = _mixed(pool[place], hashed(pool[source]))
    for word in words[_POOL:]:
        for place in range(_POOL):
            pool[place] = _mixed(pool[place], hashed(word))
    return _hashing(0x8B51F9DD, 0x58F38DED)(pool[0])


def _seed_words(number: int) -> list[int]:
    """The 32-bit words of a number, the lowest first."""
    return [number >> shift & _WORD for shift in range(0, max(1, number.bit_length()), 32)]


def _hashing(constant: int, factor: int) -> Callable[[int], int]:
    """A hash of 32-bit words that is another one at each call."""

    def hashed(word: int) -> int:
        nonlocal constant
        word ^= constant
        constant = constant * factor & _WORD
        word = word * constant & _WORD
        return word ^ word >> 16

    return hashed


def _mixed(left: int, right: int) -> int:
    word = left * 0xCA01F9DD - right * 0x4973F715 & _WORD
    return word ^ word >> 16
