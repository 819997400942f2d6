"""What was made once may fail when a state within it is restored: of a network, say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, MultiprocessingOptions, transforms
from bushel.experimental import (
    FlatMapIterDataset,
    RebatchIterDataset,
    WindowShuffleIterDataset,
)


class Copies(transforms.FlatMap):
    """Makes five elements of each."""

    max_fan_out = 5

    def flat_map(self, element: int) -> list[int]:
        return [5 * element + copy for copy in range(5)]


class Flaky:
    """A function that fails at one element, in any process, while a file says so."""

    def __init__(self, folder: Path) -> None:
        self._said = folder / "fails_at"
        self.fail_at(-1)

    def fail_at(self, element: int) -> None:
        self._said.write_text(str(element))

    def __call__(self, element: int) -> int:
        if element == int(self._said.read_text()):
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
def test_its_own_error_is_raised_and_nothing_is_lost(name: str, used: int, tmp_path: Path) -> None:
    flaky = Flaky(tmp_path)
    fails_at, make = MADE[name]
    ds = make(MapDataset.range(20).to_iter_dataset().map(flaky))
    _assert_comes_back(ds, flaky, used, fails_at)


def test_batches_that_workers_take_apart(tmp_path: Path) -> None:
    flaky = Flaky(tmp_path)
    ds = MapDataset.range(20).to_iter_dataset().map(flaky).batch(5).unbatch()
    _assert_comes_back(ds.mp_prefetch(MultiprocessingOptions(1)), flaky, used=7, fails_at=8)


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_elements_that_workers_make_of_one(is_shuffled: bool, tmp_path: Path) -> None:
    flaky = Flaky(tmp_path)
    ds = MapDataset.range(20).to_iter_dataset()
    if is_shuffled:  # Then workers get elements, and not positions.
        ds = WindowShuffleIterDataset(ds, window_size=5, seed=1)
    second = list(ds)[1]
    made = FlatMapIterDataset(ds.map(flaky), Copies()).on_error("skip")
    made = made.mp_prefetch(MultiprocessingOptions(1))
    _assert_comes_back(made, flaky, used=7, fails_at=second)


def test_rows_of_a_batch_that_fails_again_are_not_taken_from_the_next(tmp_path: Path) -> None:
    flaky = Flaky(tmp_path)
    stream = MapDataset.range(40).to_iter_dataset().map(flaky)
    ds = RebatchIterDataset(stream.batch(7), 3)
    _assert_comes_back(ds, flaky, used=3, fails_at=8)


def test_a_shuffled_group_that_fails_again(tmp_path: Path) -> None:
    flaky = Flaky(tmp_path)
    ds = MapDataset.range(60).to_iter_dataset().map(flaky).shuffle(10, seed=3)
    # Two of the fourth group were delivered, the last block of which is 16 to 19.
    _assert_comes_back(ds, flaky, used=12, fails_at=17)


def _assert_comes_back(ds: IterDataset[Any], flaky: Flaky, used: int, fails_at: int) -> None:
    iterator = iter(ds)
    for _ in range(used):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    expected = [np.ravel(element).tolist() for element in iterator]
    flaky.fail_at(fails_at)
    iterator.set_state(state)
    for _ in range(2):
        with pytest.raises(OSError, match="the network"):
            next(iterator)
        assert iterator.get_state() == state
    flaky.fail_at(-1)
    assert [np.ravel(element).tolist() for element in iterator] == expected
