"""Elements that are views of something larger are copied; all others are left as they are."""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

from bushel import MapDataset
from bushel.transforms.views import by_itself, keeps_more


def _crop(number: int) -> "np.ndarray[Any, Any]":
    picture = np.full((300, 300, 3), number, np.uint8)
    return picture[10:110, 20:120]


class Pair(NamedTuple):
    label: int
    image: Any


class Listing(list[Any]):
    """A kind of list that only its user knows: one leaf, like any object."""


TABLE = np.arange(10**6, dtype=np.int32)


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (lambda: _crop(1), True),
        (lambda: {"image": _crop(1), "label": 3}, True),
        (lambda: (1, [_crop(2)]), True),
        (lambda: np.zeros((300, 300)), False),
        (lambda: np.zeros((300, 300)).T, False),
        (lambda: np.zeros((300, 300))[:200], False),
        (lambda: np.zeros(100)[:3], False),
        (lambda: TABLE[5:100], False),
        (lambda: "text", False),
        (lambda: None, False),
        (lambda: OrderedDict(label=3, image=_crop(1)), True),
        (lambda: Pair(3, _crop(1)), True),
        (lambda: {"label": Listing([_crop(1)])}, False),
    ],
)
def test_which(make: Any, more: bool) -> None:
    assert keeps_more(make()) is more


def test_a_copy_is_the_same_and_stands_alone() -> None:
    made = by_itself({"image": _crop(7), "row": TABLE[3:5], "name": "x"})
    assert made["image"].base is None and made["image"].flags.c_contiguous
    np.testing.assert_array_equal(made["image"], _crop(7))
    assert np.shares_memory(made["row"], TABLE)
    assert made["name"] == "x"


def test_an_object_of_the_users_own_beside_a_crop_is_left_alone() -> None:
    listing = Listing([1])
    made = by_itself({"image": _crop(7), "listing": listing})
    assert made["image"].base is None
    assert made["listing"] is listing


def test_a_long_document_is_not_looked_through() -> None:
    looks: list[int] = []

    class Token(tuple[int, ...]):
        @property
        def _fields(self) -> tuple[()]:
            looks.append(1)
            return ()

    assert not keeps_more({"tokens": [Token() for _ in range(1000)]})
    # (Whether it has fields, and which.)
    assert 0 < len(looks) <= 2 * 16


@pytest.mark.parametrize("batch_first", [True, False])
def test_no_picture_outlives_its_crop(batch_first: bool) -> None:
    bases: list[Any] = []

    def look(batch: list[Any]) -> "np.ndarray[Any, Any]":
        bases.extend(row.base for row in batch)
        return np.stack(batch)

    ds = MapDataset.range(40).map(_crop)
    if batch_first:
        stream = ds.batch(8, batch_fn=look).to_iter_dataset()
    else:
        stream = ds.to_iter_dataset().batch(8, batch_fn=look)
    expected = [np.stack([_crop(n) for n in range(k, k + 8)]) for k in range(0, 40, 8)]
    for batch, wanted in zip(stream, expected, strict=True):
        np.testing.assert_array_equal(batch, wanted)
    assert bases == [None] * 40


def test_the_element_that_fails_is_still_the_one_that_is_named() -> None:
    def crop_or_fail(number: int) -> "np.ndarray[Any, Any]":
        if number == 5:
            raise ValueError("five")
        return _crop(number)

    taken = []
    with pytest.raises(ValueError, match="five") as raised:
        for element in MapDataset.range(10).map(crop_or_fail).to_iter_dataset():
            taken.append(int(element[0, 0, 0]))
    assert taken == [0, 1, 2, 3, 4]
    assert "position 5" in "".join(raised.value.__notes__)
