"""Bagz files: random access to records of bytes, in any number of files."""

import os
import struct
from functools import cache
from typing import Any

import numpy as np

from bushel.core.machine import descriptors_to_keep
from bushel.core.per_process import PerProcess
from bushel.core.positions import Keys
from bushel.errors import FileError, MissingPackageError, PlanError, RecordError, replaced_file
from bushel.files.copies import local_path, stamp_here
from bushel.files.paths import expand
from bushel.sources.arrays.mapped import check_unchanged
from bushel.sources.endings import BAGZ
from bushel.sources.keyed import KeyedSource, by_part, shown_files


class BagzDataSource(KeyedSource):
    """The records (bytes) of Bagz files, one file after the other.

    >>> import bagz, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with bagz.Writer(f"{folder.name}/a.bagz") as writer:
    ...     for letter in (b"x", b"y", b"z"):
    ...         writer.write(letter)
    >>> source = BagzDataSource(folder.name)
    >>> len(source), source[1], source.__getitems__([2, 0])
    (3, b'y', [b'z', b'x'])
    >>> folder.cleanup()

    Args:
        paths: A file, a glob, a folder (its files that end in `.bagz` or
            `.bag`), or a sequence of them. Records are compressed as the ending says: `.bagz`
            with Zstandard, `.bag` not at all. A file that is far away is copied to the cache
            folder once.
    """

    def __init__(self, paths: Any) -> None:
        _package()
        self._paths = expand(paths, BAGZ)
        self._files = _BagzFiles(descriptors_to_keep())
        opened = [self._files.get(path) for path in self._paths]
        self._stamps = [file.stamp for file in opened]
        self._ends: Keys = np.cumsum([len(file.reader) for file in opened], dtype=np.int64)

    @property
    def paths(self) -> list[str]:
        """The files, in the order of their records."""
        return list(self._paths)

    def file_stamps(self) -> dict[str, str]:
        """For each file, a text that changes when the file changes, as of its opening."""
        return dict(zip(self._paths, self._stamps, strict=True))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _records(self, keys: Keys) -> list[Any]:
        records: list[Any] = [None] * len(keys)
        for number, places, within in by_part(keys, self._ends):
            file = self._open(number)
            for place, record in zip(places.tolist(), within.tolist(), strict=True):
                records[place] = file.record(record)
        return records

    def _open(self, number: int) -> "_File":
        file = self._files.get(self._paths[number])
        if file.stamp != self._stamps[number]:
            raise replaced_file(file.path)
        # The package maps files, and access beyond the end of a truncated one would crash the
        # process.
        check_unchanged(file.local, file.status)
        return file

    def place_of(self, key: int) -> tuple[str, int, int]:
        """The file of a record, its number in it, and the byte at which it starts."""
        ((number, _, within),) = by_part(self._checked([key]), self._ends)
        record = int(within[0])
        return self._paths[number], record, self._open(number).start_of(record)

    def __repr__(self) -> str:
        return f"BagzDataSource({shown_files(self._paths)}, {len(self):,} records)"


class _File:
    """The package's reader for one file."""

    def __init__(self, path: str) -> None:
        self.path, self.local = path, local_path(path)
        _check_name(self.local)
        try:
            self.status = os.stat(self.local)
            # The whole path, so that no part of it looks like the name of a file system.
            self.reader = _package().Reader(os.path.abspath(self.local))
        except (OSError, ValueError, RuntimeError) as error:
            raise FileError(
                f"{path!r} is no Bagz file, or not a whole one: {error}. If it once was one, it "
                "has been cut short or damaged; write or copy it anew."
            ) from None

    @property
    def stamp(self) -> str:
        return stamp_here(self.path, self.local, self.status)

    def record(self, number: int) -> bytes:
        # One by one: in a call for many, the package returns records that it cannot decompress as
        # empty ones, and is slower unless records are large.
        try:
            record: bytes = self.reader[number]
        except (ValueError, RuntimeError, MemoryError, OverflowError) as error:
            raise RecordError(
                f"record {number} of {self.path!r}, at byte {self.start_of(number):,}, cannot be "
                f"read: {error}. The file is damaged; write or copy it anew."
            ) from None
        return record

    def start_of(self, number: int) -> int:
        """The byte at which a record starts: the file ends with the ends of all records."""
        if not number:
            return 0
        with open(self.local, "rb") as file:
            file.seek(-8 * (len(self.reader) - number + 1), os.SEEK_END)
            return int(struct.unpack("<Q", file.read(8))[0])


class _BagzFiles(PerProcess[str, _File]):
    """The package's readers, shared by the threads of a process."""

    def _make(self, key: str) -> _File:
        return _File(key)


def _check_name(path: str) -> None:
    for sign in ",@":
        if sign in os.path.abspath(path):
            raise PlanError(
                f"{path!r} has a {sign!r} in it, by which the package bagz means several files. "
                "Give the file, or a link to it, another name."
            )


@cache
def _package() -> Any:
    try:
        import bagz
    except ImportError as error:
        raise MissingPackageError("`BagzDataSource` needs the package bagz", "bagz") from error
    return bagz
