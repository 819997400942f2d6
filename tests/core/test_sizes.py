"""How many bytes an element is: roughly, and without looking at all of it."""

from typing import Any

import numpy as np
import pytest

from bushel.core.sizes import bytes_of


class Counted:
    """An element that says how large it is, and how often it was asked."""

    asked = 0

    @property
    def nbytes(self) -> int:
        Counted.asked += 1
        return 10


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_few_items_of_a_long_list_are_looked_at(kind: Any) -> None:
    Counted.asked = 0
    assert bytes_of(kind([Counted()] * 100_000)) == 100_000 * (10 + 8)
    assert Counted.asked <= 16


def test_short_lists_are_their_items() -> None:
    assert bytes_of([np.zeros(3, np.int32)] * 16) == 16 * 12
    assert bytes_of([]) == bytes_of(()) == bytes_of({"x": []}) == 0


def test_lists_in_lists() -> None:
    rows = [[np.zeros(4, np.int8)] * 20 for _ in range(50)]
    assert bytes_of({"rows": rows}) == 50 * (20 * (4 + 8) + 8)
    assert bytes_of({"rows": rows[:1] * 10}) == 20 * (4 + 8)


def test_what_python_adds_is_more() -> None:
    for element in ([1.5] * 1000, [1.5] * 3, {"x": (2.5,) * 100}):
        assert bytes_of(element, objects=True) > bytes_of(element)


def test_an_element_that_contains_itself() -> None:
    endless: list[Any] = [np.zeros(1000, np.int8)]
    endless += [{"me": endless}, (endless,), endless]
    assert 1000 <= bytes_of(endless) < 2000


def test_an_element_nested_more_deeply_than_calls_may_be() -> None:
    deep: Any = np.zeros(1000, np.int8)
    for _ in range(10_000):
        deep = [deep]
    assert bytes_of([np.zeros(10, np.int8), deep]) < 100


def test_an_element_whose_parts_name_each_other() -> None:
    """A graph: there are more ways through it than could ever be gone."""
    nodes = [{"id": np.zeros(1000, np.int8), "neighbours": []} for _ in range(40)]
    for node in nodes:
        node["neighbours"] = [other for other in nodes if other is not node][:12]
    assert bytes_of(nodes[0]) == 13 * 1000
