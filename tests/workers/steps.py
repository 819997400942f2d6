"""The steps of random pipelines, in a module that a worker imports in no time."""

from typing import Any

import numpy as np

from bushel import transforms


class Repeats(transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, element: Any) -> list[Any]:
        return [element + copy for copy in range(int(np.sum(element)) % 4)]


def shift(element: Any) -> Any:
    if np.any(np.asarray(element) % 29 == 28):
        raise ValueError(f"not {element}")
    return element * 2 + 1


def noise(element: Any, rng: np.random.Generator) -> Any:
    return element + rng.integers(7, size=np.shape(element))


def keep(element: Any) -> bool:
    return bool(np.sum(element) % 3)


def add_index(index: int, element: Any) -> Any:
    return element + index
