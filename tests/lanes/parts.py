"""Steps of pipelines in lanes, in a module that a worker imports in no time."""

from collections.abc import Callable, Sequence

import numpy as np

from bushel import transforms


class Copies(transforms.FlatMap):
    """Makes as many copies of a number as a list says."""

    max_fan_out = 3

    def __init__(self, counts: Sequence[int]) -> None:
        self._counts = counts

    def flat_map(self, element: int) -> list[int]:
        return [element * 4 + copy for copy in range(self._counts[element % len(self._counts)])]


def keeps(pattern: Sequence[bool]) -> Callable[[int], bool]:
    return lambda number: pattern[number % len(pattern)]


def scaled_by(factor: int) -> Callable[[int], int]:
    return lambda number: number * factor + 1


def noisy(number: int, rng: np.random.Generator) -> int:
    return number + 1000 * int(rng.integers(1000))


def with_index(index: int, number: int) -> int:
    return number + 1000 * index


def add(pair: tuple[int, int]) -> int:
    return pair[0] * 7 + pair[1]
