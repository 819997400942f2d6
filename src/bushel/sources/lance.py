"""Lance datasets: rows by number, many in one call."""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from bushel.core.block import dicts_of
from bushel.core.per_process import PerProcess
from bushel.core.positions import Keys
from bushel.errors import FileError, MissingFileError, MissingPackageError, PlanError
from bushel.sources.arrow.columns import column_of, is_regular
from bushel.sources.arrow.values import values_of
from bushel.sources.keyed import KeyedSource


class LanceDataSource(KeyedSource):
    """The rows of a Lance dataset, as dicts with an entry for each column.

    >>> import lance, pyarrow, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = pyarrow.table({"text": ["a", "b", "c"], "label": [5, 6, 7]})
    >>> _ = lance.write_dataset(table, f"{folder.name}/a.lance")
    >>> source = LanceDataSource(f"{folder.name}/a.lance")
    >>> len(source), source[1]
    (3, {'text': 'b', 'label': np.int64(6)})
    >>> folder.cleanup()

    Args:
        uri: Where the dataset is, here or in any store that Lance reads.
        columns: The columns to read; all by default.
        version: The version of the dataset to read: by default the newest that there is when
            the source is made. That one is read to the end, whatever is written meanwhile.
        storage_options: Options of the store, as Lance takes them.

    Values are those that `ParquetDataSource` gives for the same types. The dataset is opened in
    each process anew. Lance cannot be used in a process that was forked when its parent had
    read already; no worker of bushel is.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        version: int | str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._uri = os.fspath(uri)
        options = None if storage_options is None else dict(storage_options)
        self._dataset = _OpenDataset(self._uri, options)
        dataset = self._dataset.get(version)
        self._version = int(dataset.version)
        self._dataset.keep(self._version, dataset)
        schema = dataset.schema
        self._columns = list(schema.names if columns is None else columns)
        unknown = [name for name in self._columns if name not in schema.names]
        if unknown or not self._columns:
            raise PlanError(f"{self._uri!r} has no column {unknown}; it has {schema.names}.")
        self._regular = all(is_regular(schema.field(name).type) for name in self._columns)
        self._length = int(dataset.count_rows())

    def __len__(self) -> int:
        return self._length

    def _arrays(self, keys: Keys) -> list[Any]:
        """The columns of some rows, each as one Arrow array."""
        dataset = self._dataset.get(self._version)
        try:
            table = dataset.take(keys.tolist(), columns=self._columns)
        except (OSError, ValueError, RuntimeError) as error:
            shown = ", ".join(f"{key:,}" for key in keys[:5].tolist())
            raise FileError(
                f"the records {shown}{', ...' * (len(keys) > 5)} of version {self._version} of "
                f"{self._uri!r} cannot be read: {error}"
            ) from error
        arrays = [table.column(name).combine_chunks() for name in self._columns]
        # Older versions of pyarrow return chunks, even if there is only one.
        return [array.chunk(0) if hasattr(array, "chunk") else array for array in arrays]

    def _records(self, keys: Keys) -> list[Any]:
        if not len(keys):
            return []
        columns = [values_of(array) for array in self._arrays(keys)]
        return dicts_of(self._columns, columns)

    def read_columns(self, keys: Keys) -> Any:
        """Many rows as arrays, where all columns are numbers or arrays of one shape."""
        keys = self._checked(keys)
        if not self._regular or not len(keys):
            return None
        columns = {}
        for name, array in zip(self._columns, self._arrays(keys), strict=True):
            columns[name] = column_of(array)
            if columns[name] is None:
                return None  # There are nulls.
        return columns

    def place_of(self, key: int) -> tuple[str, int, None]:
        """The dataset, the number of a row in it, and None: it has no byte at which it starts."""
        self._checked([key])
        return self._uri, key, None

    def __repr__(self) -> str:
        return (
            f"LanceDataSource({self._uri!r}, version={self._version}, {self._length:,} records "
            f"of {', '.join(self._columns)})"
        )


class _OpenDataset(PerProcess[int | str | None, Any]):
    """A dataset that is open in this process, with its version."""

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        super().__init__(most=1)
        self._uri, self._options = uri, options

    def _make(self, key: int | str | None) -> Any:
        return _open(self._uri, key, self._options)


def _open(uri: str, version: int | str | None, options: dict[str, str] | None) -> Any:
    lance = _package()
    try:
        return lance.dataset(uri, version=version, storage_options=options)
    except (OSError, ValueError, RuntimeError) as error:
        if "not found" in str(error).lower():
            which = "" if version is None else f" of version {version!r}"
            raise MissingFileError(f"there is no Lance dataset {uri!r}{which}: {error}") from None
        raise FileError(f"{uri!r} cannot be read as a Lance dataset: {error}") from error


@cache
def _package() -> Any:
    try:
        import lance
    except ImportError as error:
        raise MissingPackageError("`LanceDataSource` needs the package pylance", "lance") from error
    return lance
