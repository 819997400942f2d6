"""Elements that are views of something larger are copied; all others are left as they are."""

from typing import Any

import numpy as np
import pytest

from bushel import MapDataset
from bushel.transforms import views
from bushel.transforms.views import by_itself, keeps_more


def _crop(number: int) -> "np.ndarray[Any, Any]":
    picture = np.full((300, 300, 3), number, np.uint8)
    return picture[10:110, 20:120]


TABLE = np.arange(10**6, dtype=np.int32)
SHARED = _crop(9)


class Pair(tuple[Any, ...]):
    """One that cannot be made of its entries as a namedtuple can, though it looks like one."""

    _fields = ("first", "second")


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
        (lambda: [[], {}, (), {"image": _crop(1)}], True),
        (lambda: [_crop(1)] * 2, False),
        (lambda: {"image": SHARED}, False),
        (lambda: Pair([_crop(1)]), False),
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


def test_all_else_stays_the_very_object_that_it_was() -> None:
    inner, twice, pair = [1], _crop(3), Pair([1])
    element = {"image": _crop(1), "twice": [twice, twice], "inner": inner, "pair": pair}
    made = by_itself(element)
    assert list(made) == list(element) and made["image"].base is None
    assert made["twice"] is element["twice"] and made["twice"][0] is twice
    assert made["inner"] is inner and made["pair"] is pair
    assert type(by_itself((_crop(1), inner))) is tuple


def test_a_copy_has_the_flags_and_the_order_of_the_view() -> None:
    fixed = _crop(1)
    fixed.flags.writeable = False
    across = np.zeros((300, 300), order="F")[:, :10]
    assert not by_itself([fixed])[0].flags.writeable
    assert by_itself({"x": across})["x"].flags.f_contiguous


def test_an_element_of_many_entries_is_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    names = views._names

    def noted(element: Any, depth: int) -> Any:
        for name in names(element, depth):
            looked_at.append(name)
            yield name

    monkeypatch.setattr(views, "_names", noted)
    tokens = list(range(100_000))
    assert not keeps_more(tokens) and not keeps_more(dict.fromkeys(tokens, 0))
    assert len(looked_at) < 100
    around: list[Any] = [1]
    around.append(around)  # It contains itself.
    assert not keeps_more(around) and by_itself(around) is around


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
