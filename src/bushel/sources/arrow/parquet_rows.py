"""The rows of one file for `ParquetIterDataset`, a row group at a time; nulls become NaN."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys, grouped
from bushel.errors import FileError
from bushel.sources.arrow.parquet import opened
from bushel.sources.arrow.table_files import stamp_at

# A block of rows may begin in one and end in the next.
_MOST_GROUPS = 2


class ParquetRows:
    """The rows of one file, with numpy's values of each row group.

    As numpy has no nulls, numbers of a row group with nulls among them are floats, and the nulls
    are NaN.

    Args:
        path: the file, which is opened when something is asked of it.
        options: those of `pyarrow.parquet.ParquetFile`.
    """

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        self._path, self._options = path, options
        self._ends: Keys | None = None
        self._stamp = ""
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[int, dict[str, npt.NDArray[Any]]] = {}
        # The metadata of the file. With many row groups, reading it takes a while.
        self._footer: dict[str, Any] = {}

    def _find_ends(self) -> Keys:
        if self._ends is None:
            self._stamp = stamp_at(self._path)
            with opened(self._path, **self._options) as file:
                groups = map(file.metadata.row_group, range(file.num_row_groups))
                self._ends = np.cumsum([group.num_rows for group in groups], dtype=np.int64)
        return self._ends

    def __len__(self) -> int:
        ends = self._find_ends()
        return int(ends[-1]) if len(ends) else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Many rows in one call."""
        keys, ends = np.asarray(indices, dtype=np.int64), self._find_ends()
        records: list[dict[str, Any]] = [{} for _ in range(len(keys))]
        for number, places in grouped(ends.searchsorted(keys, "right")):
            rows = keys[places] - (int(ends[number - 1]) if number else 0)
            for name, column in self._group(number).items():
                for place, value in zip(places.tolist(), column[rows], strict=True):
                    records[place][name] = value
        return records

    def _group(self, number: int) -> dict[str, npt.NDArray[Any]]:
        with self._lock:
            columns = self._groups.get(number)
            if columns is None:
                if stamp_at(self._path) != self._stamp:
                    raise FileError(
                        f"{self._path!r} was replaced while it was being read. Make the dataset "
                        "anew."
                    )
                with opened(self._path, number, **{**self._footer, **self._options}) as file:
                    self._footer = {"metadata": file.metadata}
                    table = file.read_row_group(number)
                    columns = {name: table.column(name).to_numpy() for name in table.column_names}
                while len(self._groups) >= _MOST_GROUPS:
                    del self._groups[next(iter(self._groups))]
                self._groups[number] = columns
            return columns

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_path", "_options", "_ends", "_stamp")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"ParquetRows({self._path!r})"
