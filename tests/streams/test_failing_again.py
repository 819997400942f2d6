"""What was made once may fail when a state within it is restored: of a network, say."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from bushel import IterDataset, MapDataset, transforms
from bushel.experimental import FlatMapIterDataset, WindowShuffleIterDataset


class Copies(transforms.FlatMap):
    """Makes five elements of each."""

    max_fan_out = 5

    def flat_map(self, element: int) -> list[int]:
        return [5 * element + copy for copy in range(5)]


class Flaky:
    """A function that fails at one element while it is told to."""

    def __init__(self) -> None:
        self.fails_at: int | None = None

    def __call__(self, element: int) -> int:
        if element == self.fails_at:
            raise OSError("the network")
        return element


# Each makes groups of five elements, of which the second begins at 5; and fails at an element of
# that group where the function fails at the number.
MADE: dict[str, tuple[int, Callable[[IterDataset[int]], IterDataset[Any]]]] = {
    "windows": (7, lambda ds: WindowShuffleIterDataset(ds, window_size=5, seed=1)),
    "flat map": (1, lambda ds: FlatMapIterDataset(ds, Copies())),
    "unbatch": (7, lambda ds: ds.batch(5).unbatch()),
    "mixture": (7, lambda ds: IterDataset.mix([ds.batch(5).unbatch()])),
}


@pytest.mark.parametrize("used", [6, 9])
@pytest.mark.parametrize("name", MADE)
def test_its_own_error_is_raised_and_nothing_is_lost(name: str, used: int) -> None:
    flaky = Flaky()
    fails_at, make = MADE[name]
    ds = make(MapDataset.range(20).to_iter_dataset().map(flaky))
    iterator = iter(ds)
    for _ in range(used):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    expected = list(map(int, iterator))
    flaky.fails_at = fails_at
    restored = iter(ds)
    restored.set_state(state)
    for _ in range(2):
        with pytest.raises(OSError, match="the network"):
            next(restored)
        assert restored.get_state() == state
    flaky.fails_at = None
    assert [int(element) for element in restored] == expected
