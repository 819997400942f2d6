"""Checks that users can run on their own datasets, such as checkpoint tests."""

from typing import Any

import numpy as np

from bushel.core.tree import leaves_with_paths


def assert_equal_output_after_checkpoint(ds: Any) -> None:
    """Checks that a dataset's iterator can be stopped and restored at every element.

    >>> from bushel.dataset import MapDataset
    >>> assert_equal_output_after_checkpoint(MapDataset.range(5).shuffle(seed=1))
    """
    iterator = iter(ds)
    states = [iterator.get_state()]
    elements = []
    for element in iterator:
        elements.append(element)
        states.append(iterator.get_state())
    if not elements:
        raise AssertionError("the dataset produced no elements, so nothing could be checked.")
    for start, state in enumerate(states):
        for again in (iterator, iter(ds)):
            again.set_state(state)
            if again.get_state() != state:
                raise AssertionError(f"the state before element {start} changes when restored.")
            rest = list(again)
            if len(rest) != len(elements) - start:
                raise AssertionError(
                    f"restored before element {start}, {len(rest)} elements came and not "
                    f"{len(elements) - start}."
                )
            for number, (got, expected) in enumerate(
                zip(rest, elements[start:], strict=True), start
            ):
                assert_same(got, expected, f"restored before element {start}: element {number}")


def assert_same(got: Any, expected: Any, what: str) -> None:
    """Checks that two elements are equal in structure, types, dtypes and values."""
    left, right = list(leaves_with_paths(got)), list(leaves_with_paths(expected))
    if [path for path, _ in left] != [path for path, _ in right]:
        raise AssertionError(f"{what} has another structure: {got!r} and {expected!r}.")
    for (path, one), (_, other) in zip(left, right, strict=True):
        if type(one) is not type(other):
            raise AssertionError(f"{what}: {path} is {type(one)}, and was {type(other)}.")
        if getattr(one, "dtype", None) != getattr(other, "dtype", None):
            raise AssertionError(f"{what}: {path} has dtype {one.dtype}, and had {other.dtype}.")
        np.testing.assert_array_equal(one, other, err_msg=f"{what}: {path}")
