"""The index of a file: the offsets of its records; where it is kept, when it is made again.

An index is beside its file, or in a cache folder if the former is not writable. It has the size and
modification time of its file, and is made again when these differ, or when the index is damaged. It
is a file of numbers (`files/numbers.py`), mapped and not read; its users check that the numbers are
within the file.

An index beside the file is trusted if only users who could write the file could write it.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.limits import refusal
from bushel.core.per_process import ProcessLock
from bushel.errors import FileError
from bushel.files.container import DamagedError, ForeignError
from bushel.files.local import ByteFile
from bushel.files.numbers import NumberColumn, read_numbers, write_numbers
from bushel.files.paths import is_remote
from bushel.files.private import (
    is_no_easier_to_write,
    kept_folder,
    make_private,
    open_ours,
    warn_once,
)
from bushel.files.progress_line import ProgressLine
from bushel.files.whole import alone, written_whole

Columns: TypeAlias = dict[str, npt.NDArray[np.int64]]
# Columns of an index: arrays, or numbers in a mapped file.
Index: TypeAlias = Mapping[str, npt.NDArray[np.int64] | NumberColumn]
# Scans a file and returns the columns of its index; reports its progress.
Scan: TypeAlias = Callable[[ByteFile, ProgressLine], Columns]

_VERSION = 2
_ENDING = ".bushel-index"


def index_of(file: ByteFile, kind: str, names: Sequence[str], scan: Scan) -> Index:
    """The index of a file: the stored one, if it belongs to this version of the file, or a new one.

    `kind` names the format and all options on which the result depends.
    """
    wanted = _WantedIndex(file, kind, names, scan)
    kept = wanted.find()
    if kept is None:
        with _alone(wanted.in_cache):
            # Somebody else may have made it while we waited.
            kept = wanted.find()
            if kept is None:
                columns = wanted.make()
                # Mapped memory is shared by all processes.
                return wanted.find() or columns
    return kept


def places_of_index(path: str, kind: str) -> list[str]:
    """Where an index may be, the best place first; the last one is always ours to write."""
    beside = _place_beside(path, kind)
    return [*([] if beside is None else [beside]), _place_in_cache(path, kind)]


def _place_beside(path: str, kind: str) -> str | None:
    """Where an index may be beside its file."""
    if is_remote(path):
        return None
    folder, base = os.path.split(path)
    return os.path.join(folder, f".{base}.{kind.split('(')[0]}{_ENDING}")


def _place_in_cache(path: str, kind: str) -> str:
    """Where an index may be in the cache folder, which is always ours to write."""

    import hashlib  # It loads a library of cryptography.

    whole = path if is_remote(path) else os.path.abspath(path)
    name = hashlib.sha256(f"{whole}\n{kind}".encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(kept_folder("index"), name + _ENDING)


class _WantedIndex:
    """An index to find or make: its places, how to read it, and how to make it."""

    def __init__(self, file: ByteFile, kind: str, names: Sequence[str], scan: Scan) -> None:
        self._file, self._names, self._scan = file, names, scan
        self._kind, self._beside = kind, _place_beside(file.path, kind)
        self._footer = {"version": _VERSION, "kind": kind, "of": file.stamp}
        self._lock = ProcessLock()
        self._renewed: Columns | None = None

    @cached_property
    def in_cache(self) -> str:
        """The place in the cache folder; nobody asks for it if the index is beside the file."""
        return _place_in_cache(self._file.path, self._kind)

    def _places(self) -> Iterator[str]:
        """Where the index may be, the best place first."""
        if self._beside is not None:
            yield self._beside
        yield self.in_cache

    def find(self) -> Index | None:
        """The index that is kept; None where there is none that can be trusted."""
        for place in self._places():
            kept = self._read(place)
            if kept is not None:
                return kept
        return None

    def _read(self, place: str) -> Index | None:
        try:
            descriptor = self._opened(place)
            try:
                footer, columns = read_numbers(descriptor, self._names, self._renew)
            finally:
                os.close(descriptor)
        except DamagedError as error:
            self._warn(error)
            return None
        except FileError as error:
            warn_once(f"An index is made again: {error}")
            return None
        except (OSError, ForeignError, ValueError):
            return None
        if footer != self._footer:
            return None
        # Columns rise, so these are the least and the greatest. If the column is mapped, reading
        # them would take longer than opening the file; users of the index check again.
        short = [column for column in columns.values() if isinstance(column, np.ndarray)]
        if any(len(some) and not 0 <= some[0] <= some[-1] <= self._file.size for some in short):
            return None
        return columns

    def _opened(self, place: str) -> int:
        if place != self._beside:
            return open_ours(place, os.O_RDONLY)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(place, flags)
        status = os.fstat(descriptor)
        data = os.stat(self._file.path)
        if stat.S_ISREG(status.st_mode) and is_no_easier_to_write(status, data):
            return descriptor
        os.close(descriptor)
        raise ForeignError("an index that other users may have written")

    def make(self) -> Columns:
        """Scans the file, and stores the result if possible."""
        with ProgressLine(
            f"indexing {os.path.basename(self._file.path)}", self._file.size
        ) as progress:
            columns = self._scan(self._file, progress)
        for place in self._places():
            refused = self._write(place, columns)
            if refused is None:
                return columns
        warn_once(
            f"the index of {self._file.path!r} is not kept, and made again each time: {refused}. "
            "BUSHEL_CACHE names another folder for it."
        )
        return columns

    def _write(self, place: str, columns: Columns) -> str | None:
        """Keeps an index; it is there as a whole or not at all, and then it says why not."""
        try:
            if place != self._beside:
                make_private(os.path.dirname(place))
                mode = 0o600
            elif _is_somebodys(place):
                return "there is one that belongs to another user"
            else:
                # Users who may read the file may read its index.
                mode = 0o600 | os.stat(self._file.path).st_mode & 0o044
            # An index left empty by a crash is invalid, and made again.
            with written_whole(place, mode, lasting=False) as out:
                write_numbers(out.write, self._footer, columns)
        except OSError as error:
            return refusal(error, place)
        return None

    def _renew(self, name: str, error: DamagedError) -> Any:
        """A column of a new index, in place of one that was found to be damaged during use."""
        with self._lock:
            if self._renewed is None:
                self._warn(error)
                self._renewed = self.make()
            return self._renewed[name]

    def _warn(self, error: DamagedError) -> None:
        warn_once(f"The index of {self._file.path!r} is damaged {error}, and made again.")


def _is_somebodys(place: str) -> bool:
    """Whether there is a file of another user in its place, who may need it."""
    try:
        return os.lstat(place).st_uid != os.geteuid()
    except OSError:
        return False


@contextmanager
def _alone(place: str) -> Iterator[None]:
    """Lets one process at a time make an index; the others wait and then find it."""
    try:
        make_private(os.path.dirname(place))
    except OSError:
        yield  # Several may make it. The write reports why it cannot be stored.
        return
    with alone(place + ".lock"):
        yield
