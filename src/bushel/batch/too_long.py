"""`too_long` of `pack`: truncates, splits or drops long sequences; keeps only packed fields."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bushel.core.frozen import plain


def _size(value: Any) -> int:
    """The length of a sequence; single values are sequences of one."""
    return len(value) if type(value) is np.ndarray and value.ndim else 1


@plain
class Fits:
    """Whether no sequence of an element is longer than its row."""

    lengths: Mapping[str, int]

    def __call__(self, element: Any) -> bool:
        return all(_size(element[name]) <= length for name, length in self.lengths.items())


@plain
class Truncated:
    """An element with the beginnings of its sequences, as far as a row holds them."""

    lengths: Mapping[str, int]

    def __call__(self, element: Any) -> Any:
        cut = {
            name: element[name][:length]
            for name, length in self.lengths.items()
            if _size(element[name]) > length
        }
        return {**element, **cut} if cut else element


@plain
class Pieces:
    """As many elements as are needed for each to fit; other features are in all of them.

    >>> Pieces({"x": 2}).flat_map({"x": np.arange(5), "id": 7})  # doctest: +NORMALIZE_WHITESPACE
    [{'x': array([0, 1]), 'id': 7}, {'x': array([2, 3]), 'id': 7}, {'x': array([4]), 'id': 7}]
    """

    lengths: Mapping[str, int]
    # Only needed for random-access datasets.
    max_fan_out: int = 1

    def flat_map(self, element: Any) -> list[Any]:
        lengths = self.lengths
        count = max((-(-_size(element[n]) // k) for n, k in lengths.items() if k), default=1)
        if count <= 1:
            return [element]
        return [
            {
                **element,
                **{
                    name: np.atleast_1d(element[name])[part * length : (part + 1) * length]
                    for name, length in lengths.items()
                },
            }
            for part in range(count)
        ]


@plain
class Only:
    """An element with some of its features, those that are packed."""

    names: tuple[str, ...]

    def __call__(self, element: Any) -> Any:
        return {name: element[name] for name in self.names if name in element}
