"""Functions and classes of pipelines, in a module that a worker imports in no time."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from bushel import transforms


def same(element: Any) -> Any:
    return element


def square(number: Any) -> Any:
    return number * number


def none_for_some(number: int) -> int | None:
    return None if number % 7 == 3 else number


def is_odd(number: Any) -> bool:
    return bool(number % 2)


def draw(number: Any, rng: np.random.Generator) -> Any:
    return number, rng.random()


def big(number: int) -> Any:
    return {"x": bytes(200_000), "n": number}


def with_index(index: int, element: Any) -> Any:
    return index, element


def add_noise(element: Any, rng: np.random.Generator) -> Any:
    return {**element, "later": rng.random()}


class Double(transforms.Map):
    def map(self, element: Any) -> Any:
        return element * 2


class PlusOne(transforms.Map):
    def map(self, element: Any) -> Any:
        return element + 1


class Noise(transforms.RandomMap):
    """Adds to what there is: a number, a batch, or what this class made of them."""

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return (element[0] if isinstance(element, tuple) else element), rng.integers(1000)


class FirstIsEven(transforms.Filter):
    def filter(self, element: Any) -> bool:
        return bool(element[0] % 2 == 0)


class NotThird(transforms.Filter):
    def filter(self, element: Any) -> bool:
        return bool(np.any(np.asarray(element) % 3 != 0))


class Twice(transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [element, -element]


class WithIndex(transforms.MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return with_index(index, element)


class SumOfColumns(transforms.Map):
    def map(self, element: Any) -> Any:
        return {**element, "sum": element["x"] + element["y"].sum(axis=1)}


class Slow:
    """A source that waits, as for a disk."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: int) -> int:
        time.sleep(0.001)
        return key * 3


class Gate:
    """Lets elements through as long as a file is not there."""

    def __init__(self, closed: Path) -> None:
        self._closed = closed

    def __call__(self, element: Any) -> Any:
        while self._closed.exists():
            time.sleep(0.005)
        return element


class Once:
    """Tells one process, the first that asks, and leaves a file that says which it was."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def __call__(self) -> bool:
        try:
            file = os.open(self._flag, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        os.write(file, str(os.getpid()).encode())
        os.close(file)
        return True

    def pid(self) -> int:
        return int(self._flag.read_text())


# What a worker was told when it started.
STARTED: list[tuple[int, int, int]] = []


def remember_start(index: int, count: int) -> None:
    STARTED.append((index, count, os.getpid()))


def who_am_i(_: Any) -> list[tuple[int, int, int]]:
    return list(STARTED)
