"""`NumpyDataSource`: arrays in `.npy` and `.npz` files, memory-mapped."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bushel.core.block import is_stackable_array, unstack
from bushel.core.per_process import PerProcess
from bushel.core.positions import Keys
from bushel.errors import FileError, PlanError
from bushel.files.paths import expand, without_query
from bushel.sources.arrays.mapped import MappedFiles
from bushel.sources.arrays.npy import Layout, decompressed, layout_of, member_name, members_of
from bushel.sources.endings import NUMPY
from bushel.sources.keyed import KeyedSource, by_part, rows_of, shown_files

# The decompressed size above which the log mentions it.
_LARGE_IN_MEMORY = 1 << 28


class NumpyDataSource(KeyedSource):
    """The arrays of `.npy` or `.npz` files; record i is their i-th entry.

    Files are mapped into memory: nothing is read before it is asked for, nothing is copied
    but the records that are, and all processes share what the system keeps of a file.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/x.npy", np.arange(6).reshape(3, 2))
    >>> np.save(f"{folder.name}/y.npy", np.array([7, 8, 9]))
    >>> source = NumpyDataSource({"x": f"{folder.name}/x.npy", "y": f"{folder.name}/y.npy"})
    >>> len(source), source[1]
    (3, {'x': array([2, 3]), 'y': np.int64(8)})
    >>> source.read_columns(np.array([2, 0]))
    {'x': array([[4, 5], [0, 1]]), 'y': array([9, 7])}
    >>> folder.cleanup()

    Args:
        paths: A file, a glob, a folder, or a sequence of them: the arrays of several files are
            one, end to end. Of an `.npz`, records are dicts with an entry for each array. A
            dict gives each column its own files: `{"x": "x-*.npy", "y": "y.npy"}`.

    Arrays that `numpy.savez` wrote are read where they lie in the file. Those of
    `numpy.savez_compressed` cannot be: they are decompressed as a whole, when the source is
    made and again in each process that reads it, and take up its memory.

    Numbers of the other byte order are turned into the machine's own. Entries of structured
    arrays are numpy's records, and strings are numpy's. Python objects are refused: they are
    pickles.

    Pickled, a source is the names of its files, which are opened anew. A file that is not the
    same any more, by its size and time of change, is an error.
    """

    def __init__(self, paths: Any) -> None:
        if isinstance(paths, Mapping):
            self._one = False
            files = {name: expand(part, (".npy",)) for name, part in paths.items()}
            if not files:
                raise PlanError("a source needs at least one column, and the dict is empty.")
            self._files = MappedFiles(path for part in files.values() for path in part)
            self._loaded = _Loaded(self._files)
            columns = {name: [self._array(path) for path in part] for name, part in files.items()}
        else:
            found = expand(paths, NUMPY)
            self._files = MappedFiles(found)
            self._loaded = _Loaded(self._files)
            self._one = not _are_archives(found)
            if self._one:
                columns = {"": [self._array(path) for path in found]}
            else:
                columns = self._archives(found)
        self._columns = {name: _ArrayColumn(name, parts) for name, parts in columns.items()}
        self._length = _common_length(self._columns)
        self._stacks = all(column.stacks for column in self._columns.values())
        self._loaded.say_what_is_in_memory()

    def _array(self, path: str) -> "_ArrayFile":
        if without_query(path).lower().endswith(".npz"):
            raise PlanError(
                f"{path!r} is an .npz, which has columns of its own, and cannot be one. Give it "
                "alone, or save the array that you want as .npy."
            )
        return _ArrayFile(path, None, layout_of(self._files.get(path).bytes, repr(path)), False)

    def _archives(self, paths: Sequence[str]) -> "dict[str, list[_ArrayFile]]":
        columns: dict[str, list[_ArrayFile]] = {}
        for path in paths:
            data = self._files.get(path).bytes
            members = members_of(data, path)
            names = [member.name for member in members]
            if columns and set(columns) != set(names):
                raise PlanError(
                    f"the files of a source have the same arrays, and {path!r} has {names}, while "
                    f"{paths[0]!r} has {list(columns)}."
                )
            for member in members:
                layout = member.layout
                if layout is None:
                    array = self._loaded.get((path, member.name))
                    layout = Layout(array.dtype, array.shape, False, member.start)
                part = _ArrayFile(path, member.name, layout, member.layout is None)
                columns.setdefault(member.name, []).append(part)
        return columns

    @property
    def paths(self) -> list[str]:
        """The files, each once."""
        return list(self._files.paths)

    def __len__(self) -> int:
        return self._length

    def _records(self, keys: Keys) -> list[Any]:
        return unstack(self._take(keys), len(keys))

    def read_columns(self, keys: Keys) -> Any:
        """Many records, as one array for each column."""
        return self._take(self._checked(keys)) if self._stacks else None

    def _take(self, keys: Keys) -> Any:
        taken = {name: column.take(keys, self._open) for name, column in self._columns.items()}
        return taken[""] if self._one else taken

    def _open(self, part: "_ArrayFile") -> npt.NDArray[Any]:
        """The array of a part, in this process."""
        file = self._files.get(part.path)
        if not part.compressed:
            file.check()
            return part.layout.over(file.bytes)
        assert part.member is not None
        return self._loaded.get((part.path, part.member))

    def place_of(self, key: int, column: str | None = None) -> tuple[str, int, int]:
        """The file of a record, its number in it, and the byte at which it starts.

        Of the first column, unless one is named. All records of a compressed array have one byte:
        the one at which it begins.
        """
        self._checked([key])
        return self._columns[next(iter(self._columns)) if column is None else column].place_of(key)

    def __repr__(self) -> str:
        columns = ", ".join(map(str, self._columns.values()))
        return f"NumpyDataSource({shown_files(self.paths)}, {self._length:,} records of {columns})"


class _ArrayFile(NamedTuple):
    """The array of one file."""

    path: str
    member: str | None
    layout: Layout
    compressed: bool

    @property
    def where(self) -> str:
        return repr(self.path) if self.member is None else member_name(self.path, self.member)


class _ArrayColumn:
    """Arrays of one type and shape, joined."""

    def __init__(self, name: str, parts: Sequence[_ArrayFile]) -> None:
        self.name, self.parts = name, parts
        first = parts[0]
        for part in parts:
            _check_alike(part, first)
        self.dtype = first.layout.dtype.newbyteorder("=")
        self.shape = first.layout.shape[1:]
        self.ends: Keys = np.cumsum([part.layout.shape[0] for part in parts], dtype=np.int64)
        self.stacks = is_stackable_array(np.empty(0, self.dtype))

    def take(self, keys: Keys, open_part: Any) -> npt.NDArray[Any]:
        """The entries with these keys, in a new array."""
        taken: npt.NDArray[Any] | None = None
        for number, places, records in by_part(keys, self.ends):
            part = rows_of(open_part(self.parts[number]), records)
            if len(places) == len(keys):
                return np.ascontiguousarray(part, self.dtype)
            if taken is None:
                taken = np.empty((len(keys), *self.shape), self.dtype)
            taken[places] = part
        return np.empty((0, *self.shape), self.dtype) if taken is None else taken

    def place_of(self, key: int) -> tuple[str, int, int]:
        number = int(self.ends.searchsorted(key, side="right"))
        part = self.parts[number]
        record = key - (int(self.ends[number - 1]) if number else 0)
        layout = part.layout
        values = 1 if layout.fortran_order else math.prod(self.shape)
        shift = 0 if part.compressed else record * values * layout.dtype.itemsize
        return part.path, record, layout.start + shift

    def __str__(self) -> str:
        shape = f"{list(self.shape)}" if self.shape else ""
        return f"{self.name}: {self.dtype}{shape}" if self.name else f"{self.dtype}{shape}"


class _Loaded(PerProcess[tuple[str, str], npt.NDArray[Any]]):
    """Arrays that had to be decompressed, by file and name; a pickled copy does so again."""

    def __init__(self, files: MappedFiles) -> None:
        super().__init__()
        self._files = files

    def _forked(self) -> None:
        self._unlock()  # A forked child can use the arrays, and shares their memory.

    def _make(self, key: tuple[str, str]) -> npt.NDArray[Any]:
        path, member = key
        return decompressed(self._files.get(path).bytes, path, member)

    def say_what_is_in_memory(self) -> None:
        size = sum(array.nbytes for array in self._kept.values())
        if size >= _LARGE_IN_MEMORY:
            (path, _), *_ = self._kept
            warnings.warn(
                f"{size / 1e9:.1f} GB of arrays were decompressed, and will be in each process "
                f"that reads them, since {path!r} was written by `numpy.savez_compressed`. Files "
                "of `numpy.savez` are read where they lie.",
                stacklevel=4,
            )


def _are_archives(paths: Sequence[str]) -> bool:
    archives = [path for path in paths if without_query(path).lower().endswith(".npz")]
    others = [path for path in paths if path not in archives]
    if archives and others:
        raise PlanError(
            f"a source is of .npy files or of .npz files, and here are both: {others[0]!r}, "
            f"{archives[0]!r}. Name one kind by a glob."
        )
    return bool(archives)


def _check_alike(part: _ArrayFile, first: _ArrayFile) -> None:
    layout = part.layout
    if not layout.shape:
        raise FileError(
            f"{part.where} is a single value, not an array of records: its shape is (). Save it "
            "with a first axis that counts records."
        )
    shown = layout.dtype.newbyteorder("="), layout.shape[1:]
    wanted = first.layout.dtype.newbyteorder("="), first.layout.shape[1:]
    if shown != wanted:
        raise PlanError(
            "files that are read end to end have entries of one type and shape, and these have "
            f"not: {first.where} has {wanted[0]}{list(wanted[1])}, {part.where} has "
            f"{shown[0]}{list(shown[1])}. Columns of one record are given as a dict: "
            '`NumpyDataSource({"x": ..., "y": ...})`.'
        )


def _common_length(columns: Mapping[str, _ArrayColumn]) -> int:
    lengths = {name: int(column.ends[-1]) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length:,}" for name, length in lengths.items())
        raise PlanError(f"the columns of a source must be equally long, and are not: {shown}.")
    return next(iter(lengths.values()))
