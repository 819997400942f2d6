"""What is wrong, and what is said of it."""

from collections.abc import Callable
from typing import Any

import pytest

from bushel import MapDataset, ReadOptions, transforms

numbers = MapDataset.range(10)
stream = numbers.to_iter_dataset(ReadOptions(0, 0))

# What is written, the error's classes, and words that it must say.
Case = tuple[Callable[[], Any], type[Exception], type[Exception], str]


class TooMany(transforms.FlatMap):
    max_fan_out = 1

    def flat_map(self, element: Any) -> list[Any]:
        return [element, element]


def assert_says(case: Case) -> None:
    """Fails unless what is written raises such an error, with such words."""
    write, own, builtin, words = case
    with pytest.raises(own, match=f"(?s){words}") as caught:
        write()
    assert isinstance(caught.value, builtin)
