"""`ParquetIterDataset`: Grain's class for Parquet files, of which several are read in turn."""

import os
from collections.abc import Sequence
from typing import Any

from bushel.core.node import Node
from bushel.core.options import ReadOptions
from bushel.core.places import ToStreamNode
from bushel.dataset import StreamNodeDataset
from bushel.errors import PlanError
from bushel.grain.streams import InterleaveIterDataset
from bushel.sources.arrow.parquet_rows import ParquetRows
from bushel.sources.read_records import SequenceNode

_MOST_OPEN = 16


class ParquetIterDataset(StreamNodeDataset[dict[str, Any]]):
    """Goes through the rows of Parquet files as dicts; of several files, in turn.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [f"{folder}/{letter}.parquet" for letter in "ab"]
    ...     for path in paths:
    ...         pyarrow.parquet.write_table(pyarrow.table({"of": [path[-9]] * 2}), path)
    ...     [element["of"] for element in ParquetIterDataset(paths)]
    ['a', 'b', 'a', 'b']

    Elements have numpy's values. Where a row group has nulls, its numbers are floats, and the
    nulls NaN; `sources.ParquetDataSource` has None for a null, and records in any order.

    Args:
      path: a file, or a sequence of files, of which up to 16 are open at a time.
      read_kwargs: what `pyarrow.parquet.ParquetFile` takes.
    """

    def __init__(self, path: str | Sequence[str], **read_kwargs: Any) -> None:
        self._paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        self._read_kwargs = read_kwargs
        super().__init__(self._make_node())

    def _make_node(self) -> Node:
        if not self._paths:
            raise PlanError("a stream of Parquet files needs at least one file, and got none.")
        if len(self._paths) == 1:
            rows = SequenceNode(ParquetRows(os.fspath(self._paths[0]), self._read_kwargs))
            return ToStreamNode(rows, ReadOptions(num_threads=0, prefetch_buffer_size=0), False)
        parts = [ParquetIterDataset(path, **self._read_kwargs) for path in self._paths]
        cycle_length = min(len(parts), _MOST_OPEN)
        return InterleaveIterDataset(parts, cycle_length=cycle_length)._make_node()

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restricts it to a slice of its files."""
        self._paths = self._paths[sl]
        self._node = self._make_node()
