"""Functions that fail at one element, for workers to import (see `parts`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel import transforms

FAILING_ID = 13


class Boom(Exception):
    """An error of a user's own."""


def boom(element: Any) -> Any:
    if np.any(np.asarray(element["id"]) == FAILING_ID):
        raise Boom("bang")
    return element


def boom_with_index(index: int, element: Any) -> Any:
    return boom(element)


def boom_with_rng(element: Any, rng: np.random.Generator) -> Any:
    return boom(element)


def boom_if(element: Any) -> bool:
    return bool(boom(element)["id"] % 2)


def boom_batch(elements: Sequence[Any]) -> Any:
    return [boom(element) for element in elements]


class BoomTwice(transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [boom(element)] * 2


class BoomSelection(transforms.DatasetSelectionMap):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> tuple[int, int]:
        if index == FAILING_ID:
            raise Boom("bang")
        return index % 2, index
