"""`ZarrDataSource`: Zarr arrays, and groups of them, read chunk by chunk."""

import math
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.core.block import is_stackable_array, unstack
from bushel.core.per_process import LastUsed, PerProcess
from bushel.core.positions import Keys
from bushel.errors import FileError, MissingFileError, MissingPackageError, PlanError
from bushel.sources.keyed import KeyedSource

_CACHE_BYTES = 1 << 26


class ZarrDataSource(KeyedSource):
    """A Zarr array, or a group of equally long ones; record i is their i-th entry.

    >>> import tempfile, zarr
    >>> folder = tempfile.TemporaryDirectory()
    >>> group = zarr.open_group(f"{folder.name}/a.zarr", mode="w")
    >>> group.create_array("x", shape=(4, 2), chunks=(2, 2), dtype="i8")[:] = [[0, 1]] * 4
    >>> group.create_array("y", shape=(4,), chunks=(3,), dtype="i8")[:] = [5, 6, 7, 8]
    >>> source = ZarrDataSource(f"{folder.name}/a.zarr")
    >>> len(source), source[2]
    (4, {'x': array([0, 1]), 'y': np.int64(7)})
    >>> folder.cleanup()

    Args:
        store: A path, anything else that `zarr.open` takes, or an open array or group. Of a
            group, records are dicts with an entry for each array in it, at any depth, by its
            path: "x", "inner/y".
        columns: The arrays of the group to read; all by default.
        cache_bytes: How much of the chunks that were read is kept, in each process. Records of
            one chunk that are asked for soon after each other are decompressed once.

    To read one record a whole chunk is decompressed. So records in any order are fast where a
    chunk has few of them, or where all fit the cache; otherwise shuffle by windows.

    What was never written has the array's fill value, as always with Zarr: a chunk that is not
    there is no error.
    """

    def __init__(
        self,
        store: Any,
        *,
        columns: Sequence[str] | None = None,
        cache_bytes: int = _CACHE_BYTES,
    ) -> None:
        self._store = os.fspath(store) if isinstance(store, os.PathLike) else store
        self._cache = _Chunks(cache_bytes)
        self._opened = _ZarrColumns(self._store, columns)
        self._length = _common_length(self._columns(), self._store)

    def _columns(self) -> "dict[str, _ZarrColumn]":
        """The arrays, opened in this process."""
        return self._opened.get(None)

    def __len__(self) -> int:
        return self._length

    def _records(self, keys: Keys) -> list[Any]:
        return unstack(self._take(keys), len(keys))

    def read_columns(self, keys: Keys) -> Any:
        """Many records, as one array for each column."""
        keys = self._checked(keys)
        stacks = all(column.stacks for column in self._columns().values())
        return self._take(keys) if stacks else None

    def _take(self, keys: Keys) -> Any:
        taken = {name: column.take(keys, self._cache) for name, column in self._columns().items()}
        return taken.get("", taken)

    def place_of(self, key: int) -> tuple[str, int, None]:
        """The store, the number of a record in it, and None: it has no byte at which it starts."""
        self._checked([key])
        return str(self._store), key, None

    def __repr__(self) -> str:
        columns = ", ".join(
            f"{name}: {kind}" if name else kind for name, kind in (self._opened.shown or {}).items()
        )
        return f"ZarrDataSource({self._store!r}, {self._length:,} records of {columns})"


class _ZarrColumn:
    """One array, read by chunks."""

    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, array
        if not array.shape:
            raise FileError(f"{array} is a single value; an array of records has a first axis.")
        self.dtype = np.dtype(array.dtype).newbyteorder("=")
        self.stacks = is_stackable_array(np.empty(0, self.dtype))
        self.rows = max(1, array.chunks[0])
        self.chunk_bytes = self.rows * math.prod(array.shape[1:]) * self.dtype.itemsize

    @property
    def shown(self) -> str:
        shape = list(self.array.shape)
        return f"{self.dtype}{shape} in chunks of {self.rows:,}"

    def take(self, keys: Keys, cache: "_Chunks") -> npt.NDArray[Any]:
        """The entries with these keys, in a new array."""
        numbers, inverse = np.unique(keys // self.rows, return_inverse=True)
        if len(numbers) * self.chunk_bytes > cache.most:
            wanted, inverse = np.unique(keys, return_inverse=True)
            return self._read(wanted)[inverse]
        chunks = self._chunks(numbers.tolist(), cache)
        taken = np.empty((len(keys), *self.array.shape[1:]), self.dtype)
        for place, chunk in enumerate(chunks):
            chosen = np.flatnonzero(inverse == place)
            taken[chosen] = chunk[keys[chosen] - int(numbers[place]) * self.rows]
        return taken

    def _chunks(self, numbers: list[int], cache: "_Chunks") -> list[npt.NDArray[Any]]:
        """Whole chunks: those that are not cached are read in one call."""
        kept = {number: cache.find((self.name, number)) for number in numbers}
        missing = [number for number, chunk in kept.items() if chunk is None]
        if missing:
            bounds = [
                (number * self.rows, min((number + 1) * self.rows, self.array.shape[0]))
                for number in missing
            ]
            data = self._read(np.concatenate([np.arange(*bound) for bound in bounds]))
            stop = 0
            for number, (first, last) in zip(missing, bounds, strict=True):
                start, stop = stop, stop + last - first
                # A copy, so that one cached chunk does not keep all others in memory.
                chunk = data[start:stop].copy() if len(missing) > 1 else data
                kept[number] = chunk
                cache.keep((self.name, number), chunk)
        return [chunk for chunk in kept.values() if chunk is not None]

    def _read(self, rows: Keys) -> npt.NDArray[Any]:
        """Reads rows, in rising order, in one call."""
        if not len(rows):
            return np.empty((0, *self.array.shape[1:]), self.dtype)
        first, last = int(rows[0]), int(rows[-1])
        try:
            if last - first + 1 == len(rows):
                data = self.array[first : last + 1]
            else:
                data = self.array.oindex[rows]
        except Exception as error:
            # Codecs and stores have errors of their own.
            raise FileError(
                f"the records {first:,} to {last:,} of {self.array} cannot be read, chunks "
                f"{first // self.rows:,} to {last // self.rows:,}: {error}."
            ) from error
        return np.asarray(data).astype(self.dtype, copy=False)


class _Chunks(LastUsed[tuple[str, int], npt.NDArray[Any]]):
    """The most recently used chunks, by column and number, up to a number of bytes."""

    def _weigh(self, value: npt.NDArray[Any]) -> float:
        return value.nbytes


class _ZarrColumns(PerProcess[None, dict[str, _ZarrColumn]]):
    """The arrays of a store, opened; in another process, the same ones."""

    def __init__(self, store: Any, names: Sequence[str] | None) -> None:
        super().__init__()
        self._store, self._names = store, names
        self.shown: dict[str, str] | None = None

    def _make(self, key: None) -> dict[str, _ZarrColumn]:
        arrays = _arrays(_open(self._store), self._names, self._store)
        columns = {name: _ZarrColumn(name, array) for name, array in arrays.items()}
        shown = {name: column.shown for name, column in columns.items()}
        if self.shown is not None and self.shown != shown:
            raise FileError(
                f"{self._store!r} is not what it was when this source was made: its arrays "
                f"were {self.shown} and are {shown}. Make the source anew."
            )
        self.shown = shown
        return columns


def _open(store: Any) -> Any:
    zarr = _package()
    if isinstance(store, (zarr.Array, zarr.Group)):
        return store
    try:
        return zarr.open(store, mode="r")
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no Zarr array or group {store!r}: {error}.") from None
    except Exception as error:
        raise FileError(f"{store!r} cannot be read as Zarr: {error}.") from error


def _arrays(opened: Any, names: Sequence[str] | None, store: Any) -> dict[str, Any]:
    zarr = _package()
    if isinstance(opened, zarr.Array):
        if names is not None:
            raise PlanError(f"{store!r} is one array, which has no columns {list(names)}.")
        return {"": opened}
    found = {
        name: member
        for name, member in sorted(opened.members(max_depth=None))
        if isinstance(member, zarr.Array)
    }
    if names is None:
        if not found:
            raise FileError(f"the group {store!r} has no arrays in it.")
        return found
    unknown = [name for name in names if name not in found]
    if unknown or not names:
        raise PlanError(f"the group {store!r} has no array {unknown}; it has {list(found)}.")
    return {name: found[name] for name in names}


def _common_length(columns: dict[str, _ZarrColumn], store: Any) -> int:
    lengths = {name: column.array.shape[0] for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length:,}" for name, length in lengths.items())
        raise PlanError(
            f"the arrays of {store!r} are not equally long: {shown}. Choose those that are, "
            "`columns=[...]`."
        )
    return int(next(iter(lengths.values())))


@cache
def _package() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise MissingPackageError("`ZarrDataSource` needs the package zarr", "zarr") from error
    return zarr
