"""torch datasets as sources, with numpy arrays in place of tensors.

Torch is never imported here: a program with a torch dataset has done so.
"""

import operator
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from bushel.core.block import is_stackable
from bushel.core.dtypes import bfloat16
from bushel.core.naming import source_name
from bushel.core.positions import Keys
from bushel.core.tree import Path, open_node, show_path
from bushel.errors import MissingPackageError, PlanError, SourceError
from bushel.sources.base import ColumnSource


class TorchDataSource(ColumnSource):
    """The records of a map-style dataset of torch, with numpy arrays instead of tensors.

    The arrays are the memory of the tensors, without a copy. Of a `TensorDataset`, or a subset
    of one, batches are cut from the tensors themselves, many times faster than record by record.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> dataset = TensorDataset(torch.arange(6).reshape(3, 2), torch.tensor([7, 8, 9]))
    >>> TorchDataSource(dataset)[1]
    (array([2, 3]), np.int64(8))

    Without this class a dataset of torch is a source as well, and its records are what they
    are: tensors, until `batch` makes arrays of them.

    Tensors of bfloat16 become arrays of that type of ml_dtypes. Those on a device, and sparse
    ones, are refused: a source is read by processes that have no business with a device.
    """

    def __init__(self, dataset: Any) -> None:
        refuse_iterable(dataset)
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise SourceError(
                "a `TorchDataSource` is made of a dataset with `__len__` and `__getitem__`, and "
                f"got {source_name(dataset)}: {dataset!r:.100}."
            )
        self._name = source_name(dataset)
        tensors, self._indices = _within(dataset)
        # With columns, nothing else is needed, in other processes too.
        self._columns = None if tensors is None else _columns_of(tensors)
        self._dataset: Any = dataset if tensors is None else None

    @property
    def columns(self) -> Any:
        """The arrays of a `TensorDataset`; None of any other."""
        return self._columns if self._indices is None else None

    def __len__(self) -> int:
        if self._columns is None:
            return len(self._dataset)
        return len(self._columns[0] if self._indices is None else self._indices)

    def __getitem__(self, index: SupportsIndex) -> Any:
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Many records in one call, by the dataset's own `__getitems__` where it has one."""
        keys = [operator.index(index) for index in indices]
        for key in keys:
            if not 0 <= key < len(self):
                raise IndexError(f"{self} has no record {key}; it has {len(self):,}.")
        if self._columns is not None:
            return list(zip(*self._take(np.array(keys, dtype=np.int64)), strict=True))
        read_many = getattr(self._dataset, "__getitems__", None)
        records = map(self._dataset.__getitem__, keys) if read_many is None else read_many(keys)
        return list(map(_arrays, records))

    def read_columns(self, keys: Keys) -> Any:
        """Many records of a subset of a `TensorDataset`, as one array for each tensor."""
        if self._columns is None or not is_stackable(self._columns):
            return None
        return self._take(keys)

    def _take(self, keys: Keys) -> tuple[npt.NDArray[Any], ...]:
        assert self._columns is not None
        chosen = keys if self._indices is None else self._indices[keys]
        return tuple(column[chosen] for column in self._columns)

    def __repr__(self) -> str:
        return f"TorchDataSource({self._name}, {len(self):,} records)"


def refuse_iterable(dataset: Any) -> None:
    """Raises for a dataset that has an iterator, and no records by key."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.IterableDataset):
        raise SourceError(
            f"{source_name(dataset)} is an IterableDataset, which cannot be asked for a record by "
            "its number, and a source is. Use the map-style dataset below it, or put its records "
            "in a list."
        )


def _within(dataset: Any) -> tuple[Sequence[Any] | None, Keys | None]:
    """The tensors of a `TensorDataset`, and the entries used of them, if it is a subset of one."""
    torch_data = sys.modules.get("torch.utils.data")
    indices: Keys | None = None
    # No subclasses, which may have a `__getitem__` of their own.
    while torch_data is not None and type(dataset) is torch_data.Subset:
        chosen = np.asarray(dataset.indices, dtype=np.int64)
        indices = chosen if indices is None else chosen[indices]
        dataset = dataset.dataset
    if torch_data is None or type(dataset) is not torch_data.TensorDataset:
        return None, None
    return (dataset.tensors, indices) if dataset.tensors else (None, None)


def _columns_of(tensors: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
    # Taking rows of arrays that are not contiguous is slow, so those are copied once.
    return tuple(
        np.ascontiguousarray(_array(tensor, (number,))) for number, tensor in enumerate(tensors)
    )


def _arrays(record: Any, path: Path = ()) -> Any:
    """Replaces tensors by arrays."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(record, torch.Tensor):
        array = _array(record, path)
        # As an entry of an array is: a number, not an array without axes.
        return array if array.ndim else array[()]
    opened = open_node(record)
    if opened is None:
        return record
    names, children, rebuild = opened
    return rebuild(
        [_arrays(child, (*path, name)) for name, child in zip(names, children, strict=True)]
    )


def _array(tensor: Any, path: Path) -> npt.NDArray[Any]:
    """The memory of a tensor as an array."""
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise PlanError(
            f"{show_path(path)} is a tensor on the device {tensor.device}, and records are read "
            "on the CPU. Have the dataset return `tensor.cpu()`."
        )
    if tensor.layout is not torch.strided:
        raise PlanError(
            f"{show_path(path)} is a tensor of layout {tensor.layout}, which numpy does not have. "
            "Have the dataset return `tensor.to_dense()`."
        )
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(_bfloat16())  # type: ignore[no-any-return]
    return tensor.numpy()  # type: ignore[no-any-return]


@cache
def _bfloat16() -> np.dtype[Any]:
    try:
        return bfloat16()
    except ImportError as error:
        raise MissingPackageError(
            "numpy has no bfloat16 of its own; tensors of it need the package ml_dtypes, or "
            "`tensor.float()` in the dataset",
            "torch",
        ) from error
