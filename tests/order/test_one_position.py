"""A single position is read like a block of one: in any epoch, however far away."""

from typing import Any

import numpy as np
import pytest

from bushel import MapDataset
from bushel.core.positions import positions_of, split_epochs

SOME_POSITIONS = [0, 9, 10, -1, -11, 2**62, -(2**62), 2**63 - 1, 2**63, 10**30, -(10**30)]


@pytest.mark.parametrize("position", [*SOME_POSITIONS, -(2**63) + 1, -(2**63), -(2**63) - 1])
@pytest.mark.parametrize("length", [1, 10, 2**40])
def test_its_epoch(position: int, length: int) -> None:
    epoch, offsets = split_epochs(positions_of([position]), length)
    assert type(epoch) is int and offsets.dtype == np.int64
    assert (epoch, offsets.tolist()) == (position // length, [position % length])


FAR = 2**62
RANGES = [
    *(range(7), range(5, 12), range(3, 20, 4), range(9, -9, -2)),
    *(range(FAR - 3, FAR + 3), range(-FAR - 3, -FAR + 3), range(FAR - 9, FAR - 2)),
    *(range(0, FAR + 9, FAR - 9), range(2**70, 2**70 + 3)),
]


@pytest.mark.parametrize("numbers", RANGES, ids=repr)
def test_integers_of_a_range(numbers: range) -> None:
    ds = MapDataset.range(numbers.start, numbers.stop, numbers.step)
    assert list(ds) == list(numbers)
    for place in range(-len(numbers), 2 * len(numbers)):
        number: Any = ds[place]
        assert type(number) is int and number == numbers[place % len(numbers)]


def _parts() -> list[MapDataset[Any]]:
    def odd_ones(number: int) -> int:
        if number == 4:
            raise ValueError("four")
        return number

    plain = MapDataset.range(10, 17)
    shuffled = MapDataset.range(20, 25).shuffle(seed=3)
    return [plain, shuffled, MapDataset.range(3, 6).map(odd_ones), plain.filter(lambda n: n % 2)]


@pytest.mark.parametrize("joined", [MapDataset.mix, MapDataset.concatenate])
def test_one_of_several_parts(joined: Any) -> None:
    ds = joined(_parts())
    together: list[Any] = []
    for place in range(2 * len(ds)):
        try:
            # Two at a time, which come together from their parts.
            together.append(ds.__getitems__([place, place])[0])
        except ValueError as error:
            together.append(error.__notes__)
    one_by_one: list[Any] = []
    for place in range(2 * len(ds)):
        try:
            one_by_one.append(ds[place])
        except ValueError as error:
            one_by_one.append(error.__notes__)
    assert one_by_one == together
    assert None in together and any(isinstance(element, list) for element in together)
