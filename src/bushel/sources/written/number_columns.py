"""Reads elements that have only numbers as columns, many at a time."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bushel.sources.huggingface import PythonColumns
from bushel.sources.written.element_layout import ElementLayout

# The types of Python's numbers when they are stacked.
_STACKED = {"int": np.dtype(np.int64), "float": np.dtype(np.float64), "bool": np.dtype(np.bool_)}
_TABLES = ("parquet", "arrow")


class NumberColumns:
    """How columns of a table become columns of elements."""

    def __init__(self, layout: ElementLayout, python: bool) -> None:
        """`python` says that an element has Python's numbers, and not those of numpy."""
        self._layout, self._python = layout, python

    def of(self, table: Mapping[str, Any] | None, size: int) -> Any:
        """The columns of so many elements; None if the table has other columns than expected."""
        if table is None:
            return None
        columns = []
        for field in self._layout.fields:
            column = table.get(field.name)
            wanted = _STACKED.get(field.kind, field.dtype)
            if column is None or column.dtype != wanted or column.shape != (size,):
                return None
            columns.append(column)
        tree = self._layout.element(columns)
        return PythonColumns(tree, None, size) if self._python else tree


def number_columns(format: str, layout: ElementLayout) -> NumberColumns | None:
    """How elements of a layout are read as columns; None if they are rows.

    Those of a table are columns if all of their fields are numpy's numbers, or if they are dicts of
    Python's numbers only.
    """
    fields = layout.fields
    if format not in _TABLES or not fields:
        return None
    if all(field.kind == "scalar" and _is_number(field.dtype) for field in fields):
        return NumberColumns(layout, python=False)
    if layout.is_flat and all(field.kind in _STACKED for field in fields):
        return NumberColumns(layout, python=True)
    return None


def _is_number(dtype: "np.dtype[Any] | None") -> bool:
    return dtype is not None and dtype.kind in "biuf"
