"""`SharedMemoryDataSource`: written once, read by any number of processes."""

import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, SupportsIndex

import numpy as np

from bushel.core.memory_file import create_unnamed, keep_file, map_file
from bushel.core.shared_memory import create_named, open_named, remove_named
from bushel.errors import ClosedError, PlanError, SourceError
from bushel.sources.arrays.layout import LayoutWriter, Memory, Packed, checked_key
from bushel.sources.base import ColumnSource

# The most records in the text of a source, and letters of each.
_SHOWN_RECORDS = 6
_SHOWN_LETTERS = 40


class SharedMemoryDataSource(Sequence[Any], ColumnSource):
    """Records in memory that all processes of a program share.

    Elements are numpy arrays of any shape, numbers, strings, bytes or None, of any size. A
    dict or tuple of equally long arrays, or one array, is a source of columns: record i is
    the dict or tuple of their i-th entries.

    >>> source = SharedMemoryDataSource(["a", 1.5, b"xyz", None, np.zeros((2, 2))])
    >>> len(source), source[0], source[-2]
    (5, 'a', None)
    >>> columns = SharedMemoryDataSource({"x": np.arange(6).reshape(3, 2), "y": np.arange(3)})
    >>> columns[1]
    {'x': array([2, 3]), 'y': np.int64(1)}

    Every record is a copy that belongs to whoever asked for it: many a `map` changes its
    element in place, and memory that others read must not change. `columns` are the arrays
    themselves, without a copy, and cannot be written to.

    Without a `name` the memory has none anywhere, and ends with the last process that uses
    it. Worker processes of bushel are handed the memory along with the pipeline.

    With a `name`, any process of the same user reads the same memory by
    `SharedMemoryDataSource(name=name)`, and a pickle carries the name alone. What other users
    made, or could have written to, is refused. The name is
    removed by `unlink()`, when the object that made it is gone, and when its process ends,
    however that ends; whoever has opened it before keeps what it has.
    """

    def __init__(self, elements: Any = None, *, name: str | None = None) -> None:
        if elements is None and name is None:
            raise PlanError(
                "a SharedMemoryDataSource is made of elements, or opened by the name of one "
                "that was: `SharedMemoryDataSource([...])`, `SharedMemoryDataSource(name=...)`."
            )
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of shared memory is a string, and {name!r} is none.")
        self._unlink: weakref.finalize[..., Any] | None = None
        if elements is None:
            assert name is not None
            self._open(_opened(name), name)
        else:
            packing = LayoutWriter(elements)
            if name is None:
                self._open(_written(create_unnamed(packing.size), packing), None, packing.tree)
            else:
                self._make(packing, name)

    def _make(self, packing: LayoutWriter, name: str) -> None:
        if packing.unheld is not None:
            raise SourceError(
                "columns in shared memory with a name form dicts, lists and tuples, and "
                f"{str(packing.unheld).replace('element[0]', 'here elements', 1)}. Give them as "
                "one of those, or give no `name`."
            )
        try:
            descriptor, name = create_named(packing.size, name)
        except FileExistsError as error:
            raise FileExistsError(
                error.errno,
                f"there is shared memory with the name {name!r} already. Open it with "
                "`SharedMemoryDataSource(name=...)`, or remove it with its `unlink()`",
            ) from None
        # From here on, whatever happens.
        self._unlink = weakref.finalize(self, _remove, name, os.getpid())
        self._open(_written(descriptor, packing), name)

    def _open(self, memory: Memory, name: str | None, tree: Any = None) -> None:
        packed = Packed(memory, tree)
        self._name = name
        self._length = packed.length
        self._packed: Packed | None = packed

    @classmethod
    def _over(cls, buffer: Any, tree: Any = None) -> "SharedMemoryDataSource":
        """Reads the memory that `__reduce_ex__` returned, in place."""
        source = cls.__new__(cls)
        source._unlink = None
        source._open(np.frombuffer(memoryview(buffer).toreadonly(), dtype=np.uint8), None, tree)
        return source

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        cls = type(self)
        if self._name is not None:
            return _by_name, (cls, self._name)
        packed = self._opened()
        # As an array: the pickler decides how its memory travels, or whether it has to.
        return cls._over, (packed.memory, packed.tree)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: Any) -> Any:
        return self._opened().record(checked_key(position, self._length))

    def __getitems__(self, keys: Sequence[int]) -> list[Any]:
        """Returns many records in one call."""
        return self._opened().records(keys)

    @property
    def name(self) -> str | None:
        """The name under which other processes find the memory, if it has one."""
        return self._name

    @property
    def columns(self) -> Any:
        """The arrays, as one tree, of a source of columns; None where records are apart.

        Arrays of one shape and type, given as a list, are one column. It is read-only.
        """
        return self._opened().columns

    @property
    def format(self) -> str:
        """What is stored, as text: a letter for each record, or the types of the columns.

        >>> SharedMemoryDataSource([1, 2.5, "a", True]).format
        'qds?'
        """
        return self._opened().format()

    def close(self) -> None:
        """Releases the memory; nothing can be read any more through this object."""
        self._packed = None

    def unlink(self) -> None:
        """Removes the name, if there is one, so that no further process can open it.

        Processes that have it open continue to read. Memory without a name needs no removal.
        """
        if self._name is None:
            return
        if self._unlink is not None:
            self._unlink()
        else:
            _remove(self._name, os.getpid())

    def _opened(self) -> Packed:
        if self._packed is None:
            raise ClosedError(f"{self} has been closed; make or open another one.")
        return self._packed

    def __str__(self) -> str:
        return f"InMemoryDataSource(name={self._name}, len={self._length})"

    def __repr__(self) -> str:
        # Without long contents, as it is part of every state of a loader.
        if self._packed is None:
            shown = "closed"
        elif self._packed.columns is not None:
            shown = self._packed.format()
        else:
            records = self._packed.records(range(min(self._length, _SHOWN_RECORDS)))
            more = ["..."] if self._length > _SHOWN_RECORDS else []
            shown = f"[{', '.join([*map(_shown, records), *more])}]"
        return f"SharedMemoryDataSource({shown}, name={self._name!r})"


def _written(descriptor: int, packing: LayoutWriter) -> Memory:
    """Writes to new memory, and returns it for reading."""
    try:
        packing.write(map_file(descriptor, writable=True))
        mapped = map_file(descriptor, writable=False)
        keep_file(mapped, descriptor)
        return mapped
    finally:
        os.close(descriptor)


def _opened(name: str) -> Memory:
    try:
        descriptor = open_named(name, writable=False)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            error.errno,
            f"there is no shared memory with the name {name!r}. Make it with "
            f"`SharedMemoryDataSource(elements, name={name!r})`, and keep that object: the name "
            "goes with it",
        ) from None
    try:
        return map_file(descriptor, writable=False)
    finally:
        os.close(descriptor)


def _by_name(cls: type[SharedMemoryDataSource], name: str) -> SharedMemoryDataSource:
    return cls(name=name)


def _remove(name: str, pid: int) -> None:
    # A forked process has the object, too, but must not clean up.
    if os.getpid() == pid:
        with suppress(FileNotFoundError):  # Another process has removed it.
            remove_named(name)


def _shown(record: Any) -> str:
    if isinstance(record, np.ndarray):
        return f"{record.dtype}{list(record.shape)}"
    text = repr(record)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."
