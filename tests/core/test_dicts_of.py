"""Rows that are made of columns."""

import pytest

from bushel.core.block import dicts_of


def test_rows_have_the_order_of_the_columns() -> None:
    rows = dicts_of(("b", "a", "c"), [[1, 2], (3, 4), "xy"])
    assert rows == [{"b": 1, "a": 3, "c": "x"}, {"b": 2, "a": 4, "c": "y"}]
    assert [list(row) for row in rows] == [["b", "a", "c"]] * 2
    assert rows[0] is not rows[1]


def test_nothing_to_make_them_of() -> None:
    assert dicts_of([], []) == []
    assert dicts_of(["a", "b"], [[], []]) == []


@pytest.mark.parametrize("columns", [[[1], [1, 2]], [[1, 2], [1]], [[1, 2]]])
def test_columns_of_unlike_lengths(columns: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="zip"):
        dicts_of(["a", "b"], columns)
