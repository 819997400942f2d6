"""`get_next_index` and `set_next_index`: the place of an iterator as an index."""

import operator
from typing import Any, cast

from bushel.deliver.iterator import DatasetIterator


def get_next_index(ds_iter: DatasetIterator[Any]) -> int:
    """Returns the index of the element that an iterator produces next.

    Raises NotImplementedError if that takes more than arithmetic (after a filter).
    """
    return cast(int, _indexed(ds_iter)._get_next_index())


def set_next_index(ds_iter: DatasetIterator[Any], index: int) -> None:
    """Moves an iterator to an element without producing the ones before."""
    _indexed(ds_iter)._set_next_index(operator.index(index))


def _indexed(ds_iter: Any) -> Any:
    if not isinstance(ds_iter, DatasetIterator):
        raise TypeError(f"this takes a dataset's iterator, and got a {type(ds_iter).__name__}.")
    if not hasattr(ds_iter, "_get_next_index"):
        raise NotImplementedError(f"{type(ds_iter).__name__} does not tell elements by index.")
    return ds_iter
