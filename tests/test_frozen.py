"""Classes that are only their fields: set once, and as they are afterwards."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from bushel.frozen import frozen, plain


@frozen
class Point:
    """A place."""

    x: int
    y: int = 2

    @property
    def length(self) -> int:
        return self.x + self.y


@frozen
class Named(Point):
    """A place with a name."""

    name: str = "here"


def test_fields_are_given_once() -> None:
    point: Any = Named(1, name="there")
    assert (point.x, point.y, point.name, point.length) == (1, 2, "there", 3)
    assert [field.name for field in fields(point)] == ["x", "y", "name"]
    for name in ("x", "name"):
        with pytest.raises(FrozenInstanceError, match=f"Named.{name} cannot be changed"):
            setattr(point, name, 5)
        with pytest.raises(FrozenInstanceError, match=name):
            delattr(point, name)
    with pytest.raises(AttributeError, match="colour"):
        point.colour = "red"
    assert (point.x, point.name) == (1, "there")


@pytest.mark.parametrize(
    "make",
    [copy.copy, copy.deepcopy, lambda point: pickle.loads(pickle.dumps(point)), replace],
    ids=["copy", "deepcopy", "pickle", "replace"],
)
def test_copies_are_as_frozen(make: Any) -> None:
    made = make(Named(4, 5, "far"))
    assert (made.x, made.y, made.name) == (4, 5, "far")
    with pytest.raises(FrozenInstanceError):
        made.x = 1


def test_they_are_compared_by_identity() -> None:
    assert Point(1) != Point(1)
    assert len({Point(1), Point(1)}) == 2


def test_plain_ones_can_be_changed() -> None:
    @plain
    class Counter:
        """A number."""

        count: int = 0

    counter = Counter()
    counter.count += 1
    assert counter.count == 1
