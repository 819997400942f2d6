"""Pads sequences to the longest one and stacks them, for token batches and buckets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bushel.core.frozen import plain
from bushel.core.stack import stack
from bushel.core.tree import Path, show_path
from bushel.errors import BatchError, PlanError


@plain
class Padding:
    """The features to pad, the values to pad with, and the multiple to pad to.

    With a mapping, it names the features to pad, each with its value. Otherwise all arrays of an
    element are padded along their first axis.
    """

    value: Any
    multiple: int

    def up(self, size: int) -> int:
        """The padded length, given the length of the longest sequence."""
        return -(-size // self.multiple) * self.multiple

    def batch(self, elements: Sequence[Any], least: int = 0) -> Any:
        """Stacks elements; sequences become as long as the longest, and at least `least` long.

        >>> Padding(0, 4).batch([{"x": np.array([1, 2, 3])}, {"x": np.array([4])}])
        {'x': array([[1, 2, 3, 0],
               [4, 0, 0, 0]])}
        """
        value = self.value
        if not isinstance(value, Mapping):
            return self._padded(elements, value, least, ())
        if set(map(type, elements)) != {dict} or not elements[0].keys() >= value.keys():
            raise BatchError(
                f"`padding` names the features {sorted(value)}, so elements must be dicts that "
                f"have them, and here is {_shown(elements, value)}."
            )
        names = elements[0].keys()
        if any(element.keys() != names for element in elements):
            stack(elements)  # It raises the difference.
        batch = {}
        for name in names:
            leaves = [element[name] for element in elements]
            batch[name] = (
                self._padded(leaves, value[name], least, (name,))
                if name in value
                else stack(leaves, (name,))
            )
        return batch

    def _padded(self, rows: Sequence[Any], value: Any, least: int, path: Path) -> Any:
        first = rows[0]
        kinds = set(map(type, rows))
        if kinds == {np.ndarray} and first.ndim:
            return self._arrays(rows, value, least, path)
        if kinds == {dict} and all(row.keys() == first.keys() for row in rows):
            return {
                name: self._padded([row[name] for row in rows], value, least, (*path, name))
                for name in first
            }
        if kinds == {tuple} and {len(row) for row in rows} == {len(first)}:
            columns = enumerate(zip(*rows, strict=True))
            return tuple(self._padded(part, value, least, (*path, at)) for at, part in columns)
        return stack(rows, path)

    def _arrays(self, arrays: Sequence[Any], value: Any, least: int, path: Path) -> Any:
        tail = arrays[0].shape[1:]
        other = next((array for array in arrays if array.shape[1:] != tail), None)
        if other is not None:
            raise BatchError(
                "sequences are padded along their first axis, and must have one shape after it: "
                f"{show_path(path)} has {tail} in one element and {other.shape[1:]} in another."
            )
        size = max(least, self.up(max(map(len, arrays))))
        dtypes = {array.dtype for array in arrays}
        dtype = dtypes.pop() if len(dtypes) == 1 else np.result_type(*dtypes)
        made = np.full((len(arrays), size, *tail), value, dtype)
        for row, array in zip(made, arrays, strict=True):
            row[: len(array)] = array
        return made


def _shown(elements: Sequence[Any], value: Mapping[str, Any]) -> str:
    for element in elements:
        if type(element) is not dict:
            return f"a {type(element).__name__}"
        if not element.keys() >= value.keys():
            return f"one with {sorted(element)}"
    raise AssertionError("all elements have what is named")


def with_lengths(batch: Any, lengths: Sequence[int], name: str | None, operation: str) -> Any:
    """Adds the lengths of its elements to a batch, if they are wanted."""
    if name is None:
        return batch
    if not isinstance(batch, dict):
        raise BatchError(
            f"`{operation}(..., lengths_as={name!r})` adds a feature to batches that are dicts, "
            f"and this one is a {type(batch).__name__}. Make elements dicts in a `map` before."
        )
    if name in batch:
        raise BatchError(
            f"`{operation}(..., lengths_as={name!r})`: elements have a feature of that name."
        )
    return {**batch, name: np.array(lengths, np.int32)}


def padding_of(value: Any, multiple: int, operation: str) -> Padding:
    """Checks the user's arguments."""
    if multiple <= 0:
        raise PlanError(
            f"`{operation}`: pad_to_multiple_of must be a positive number, and is {multiple}."
        )
    if isinstance(value, Mapping) and not value:
        raise PlanError(
            f"`{operation}`: `padding` names no feature. Write the value for each feature that is "
            "to be padded, or one value for all arrays."
        )
    return Padding(dict(value) if isinstance(value, Mapping) else value, multiple)
