"""`ArrayRecordDataSource`: random access to files; chooses the faster of its reader's two ways.

The package's reader has two ways to read, and which is faster depends:

    read([5, 900, 17])   all in one call: goes through the whole index of the file, wakes dozens
                         of threads, and lets them decode
    read(5, 6)           neighbours in one call: goes straight to them

So a few records are read run by run, and many by list. (Measured for small records in a file
of 100,000, on two cores: run by run 3 us for each; by list 270 us for one record, 5 us for
each of 256, 2.4 us for each of 4,096.)
"""

import hashlib
import operator
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, islice, pairwise
from math import inf
from time import perf_counter
from types import TracebackType
from typing import (
    Any,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
)

import numpy as np

from bushel.core.machine import available_cores, descriptors_to_keep
from bushel.core.per_process import PerProcess
from bushel.core.positions import Keys
from bushel.errors import (
    FileError,
    MissingFileError,
    MissingPackageError,
    PlanError,
    note_place,
    replaced_file,
)
from bushel.files.copies import local_path, stamp_here
from bushel.files.paths import is_remote
from bushel.sources.array_record_paths import OF_THE_PACKAGE, FileInstruction, FilePart, parts_of

T = TypeVar("T")

# The package's advice for records in any order: no read-ahead.
_RANDOM_ACCESS = {"readahead_buffer_size": "0", "max_parallelism": "0"}
# Seconds per run; seconds of a list before its first record; and further seconds of a list for each
# group of the file. (Records of a group are compressed together; in most files a group is one
# record.)
_SECONDS_A_RUN = 2.7e-6
_SECONDS_A_LIST = 7e-4
_SECONDS_A_GROUP = 2.7e-9
# Runs may take longer: records are large, or remote, or another thread holds the interpreter's
# lock. So now and then a few are timed, and the fastest of them counts.
_TIMED_RUNS, _OTHER_RUNS = 3, 61
_SECONDS_A_SLOW_RUN = 3e-5
# Records, and bytes of them, in one list: enough to be worth its overhead.
_MOST_AT_A_TIME = 4096
_MOST_BYTES = 2 << 20
_AT_ONCE = 1024
_MOST_OPENING = 32


_Path: TypeAlias = str | os.PathLike[str] | FileInstruction


class ArrayRecordDataSource:
    """The records (bytes) of ArrayRecord files, one file after the other.

    >>> import tempfile
    >>> from array_record.python.array_record_module import ArrayRecordWriter
    >>> folder = tempfile.TemporaryDirectory()
    >>> for letter in "ab":
    ...     writer = ArrayRecordWriter(f"{folder.name}/{letter}.array_record", "group_size:1")
    ...     for number in range(3):
    ...         writer.write(f"{letter}{number}".encode())
    ...     writer.close()
    >>> source = ArrayRecordDataSource(folder.name)
    >>> print(source)
    ArrayRecordDataSource(2 files, 6 records)
    >>> source[4], source.__getitems__([5, 0])
    (b'b1', [b'b2', b'a0'])
    >>> folder.cleanup()

    Args:
        paths: One of these, or a sequence of them: a file; a part of it, "file[10:20]"; a
            glob; a folder, which stands for its files with `array_record` in their names; an
            object with `filename`, `skip`, `take` and `examples_in_shard`, as TFDS makes
            them. With the last ones no file is opened before it is read.
        reader_options: Options of the package's reader. Unless they say otherwise, it does
            not read ahead, which is best for records in any order.

    `gs://` is read by the package; files of other places are copied to the cache folder once.

    Files are opened when they are first read, in each process anew, and any number of threads
    may read at once. A process that is forked when its parent has read already opens them
    anew too; but then the package, which decompresses with threads that are not there any
    more, may hang. Workers of bushel are not forked.
    """

    def __init__(
        self,
        paths: _Path | Sequence[_Path],
        reader_options: dict[str, str] | None = None,
    ) -> None:
        _package()
        self._options = _options_text(reader_options)
        parts = list(parts_of(paths))
        self._paths = [part.file for part in parts]
        # Stamps of the files when they were first opened, to notice replaced files.
        self._stamps: dict[str, str] = {}
        lengths = np.array(_lengths(parts, self._options, self._stamps))
        self._ends = lengths.cumsum()
        self._length = int(self._ends[-1])
        # The difference between a key and the position in its file.
        self._shifts = np.array([part.skip for part in parts]) - (self._ends - lengths)
        self._files = _ArrayRecordFiles(self._options, self._stamps)

    @property
    def paths(self) -> list[str]:
        """The files, each as often as it is read."""
        return self._paths

    def file_stamps(self) -> dict[str, str]:
        """For each opened file, a text that changes when the file changes."""
        return self._stamps

    @property
    def records_at_a_time(self) -> int:
        """The best number of records for one request."""
        file = self._paths[0]
        if self._length == 0 or not os.path.exists(file):
            return 1
        opened = self._files.get(file)
        bytes_each = os.path.getsize(file) / max(1, opened.length)
        most = int(min(_MOST_AT_A_TIME, _MOST_BYTES / bytes_each))
        return most if opened.list_pays(most // len(self._paths)) else 1

    def place_of(self, key: int) -> tuple[str, int, None]:
        """The file of a record, and its number in it; the package does not tell the byte."""
        self._check(key, key)
        part = int(self._ends.searchsorted(key, "right"))
        return self._paths[part], int(key + self._shifts[part]), None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, record_key: SupportsIndex) -> bytes:
        key = operator.index(record_key)
        self._check(key, key)
        part = self._ends.searchsorted(key, "right")
        return self._read(part, np.array([key]))[0]

    # `__getitems__` takes keys as an array, too.
    takes_arrays = True

    def __getitems__(self, record_keys: Sequence[SupportsIndex] | Keys) -> list[bytes]:
        """Returns many records in one call, in the order of the keys."""
        if not len(record_keys):
            return []
        keys = _key_array(record_keys)
        self._check(int(keys.min()), int(keys.max()))
        if len(self._paths) == 1:
            return self._read(np.intp(0), keys)
        order = keys.argsort(kind="stable")
        keys = keys[order]
        parts = self._ends.searchsorted(keys, "right")
        changes = np.flatnonzero(np.diff(parts)) + 1
        records: list[bytes] = []
        for start, stop in pairwise([0, *changes.tolist(), len(keys)]):
            records += self._read(parts[start], keys[start:stop])
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return list(map(records.__getitem__, places.tolist()))

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, self._length, _AT_ONCE):
            yield from self.__getitems__(range(start, min(start + _AT_ONCE, self._length)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the files. A later read opens them again."""
        self._files = _ArrayRecordFiles(self._options, self._stamps)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_files"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._files = _ArrayRecordFiles(self._options, self._stamps)

    def __repr__(self) -> str:
        # It is part of every state of a loader, and has the same text as in states of Grain.
        paths = "".join(self._paths).encode("utf-8", "surrogateescape")
        digest = hashlib.sha1(paths, usedforsecurity=False)
        return f"ArrayRecordDataSource(hash_of_paths={digest.hexdigest()})"

    def __str__(self) -> str:
        files = len(set(self._paths))
        return (
            f"ArrayRecordDataSource({files:,} file{'s' * (files != 1)}, "
            f"{self._length:,} record{'s' * (self._length != 1)})"
        )

    def _check(self, low: int, high: int) -> None:
        if low < 0 or high >= self._length:
            key = low if low < 0 else high
            raise ValueError(f"{self} has no record {key}; keys count from 0.")

    def _read(self, part: np.intp, keys: Keys) -> list[bytes]:
        """Reads records of one part."""
        positions = keys + self._shifts[part]
        files = self._files
        opened = files.get(self._paths[part])
        try:
            return opened.records(positions)
        except (RuntimeError, IndexError):
            # The cause may be a server that was restarted, and not the file.
            files.discard(opened.file, opened)
            return files.get(self._paths[part]).one_by_one(positions)


class _ArrayRecordFiles(PerProcess[str, "_OpenFile"]):
    """The open files of one process, shared by its threads.

    In a forked process, those of the parent are left alone, and not even closed: threads of the
    parent, which do not exist here, may have been reading, with readers in any state.
    """

    def __init__(self, options: str, stamps: dict[str, str]) -> None:
        super().__init__(most=descriptors_to_keep())
        self._options, self._stamps = options, stamps

    def _forked(self) -> None:
        self._of_parent = self._kept  # Never used, but kept from being finalised.
        super()._forked()

    def _make(self, key: str) -> "_OpenFile":
        opened = _OpenFile(key, self._options)
        if self._stamps.setdefault(key, opened.stamp) != opened.stamp:
            raise replaced_file(key)
        return opened


class _OpenFile:
    """The package's reader on one file."""

    __slots__ = ("_groups", "_read", "file", "length", "stamp")

    def __init__(self, file: str, options: str) -> None:
        self.file = file
        _first_process()
        # The package reads some remote files itself, without a copy.
        local = file if file.startswith(OF_THE_PACKAGE) else local_path(file)
        try:
            reader = _package().ArrayRecordReader(_for_the_package(local), options)
        except ValueError as error:
            raise PlanError(f"the reader_options {options!r} are refused: {error}.") from None
        if not reader.ok():
            raise _refusal(file, reader)
        self.stamp = _stamp(file, local)
        self._read: Callable[..., list[bytes]] = reader.read
        self.length: int = reader.num_records()
        group_size = re.search(r"group_size:(\d+)", reader.writer_options_string() or "")
        self._groups: int = self.length // (int(group_size[1]) if group_size else 1)

    def records(self, positions: Keys) -> list[bytes]:
        """Reads records, in the way that is probably faster."""
        if len(positions) == 1 or _is_forked():
            return [self._read(key, key + 1)[0] for key in positions.tolist()]
        breaks = (positions[1:] != positions[:-1] + 1).nonzero()[0] + 1
        if len(breaks) and self.list_pays(len(breaks) + 1):
            return self._read(positions.tolist())
        return self._run_by_run(positions, breaks)

    @property
    def _list_seconds(self) -> float:
        """The time of a list without records."""
        return _SECONDS_A_LIST + self._groups * _SECONDS_A_GROUP

    def list_pays(self, runs: int) -> bool:
        # A list decodes a group once, however many of its records are needed.
        worth = 1.0 if self._groups < self.length else _worth_of_threads()
        return self._list_seconds < worth * runs * _SECONDS_A_RUN

    def _run_by_run(self, positions: Keys, breaks: Keys) -> list[bytes]:
        if len(breaks) == len(positions) - 1:
            starts, stops = positions.tolist(), (positions + 1).tolist()
        else:
            starts = positions[[0, *breaks]].tolist()
            stops = (positions[[*(breaks - 1), -1]] + 1).tolist()
        runs = map(self._read, starts, stops)
        left = len(starts)
        records: list[bytes] = []
        while left > 0:
            seconds = inf
            for run_seconds, run in islice(_timed(runs), _TIMED_RUNS):
                records += run
                seconds = min(seconds, run_seconds)
                left -= 1
            if seconds > _SECONDS_A_SLOW_RUN and left * seconds > self._list_seconds:
                return records + self._read(positions[len(records) :].tolist())
            records += chain.from_iterable(islice(runs, _OTHER_RUNS))
            left -= _OTHER_RUNS
        return records

    def one_by_one(self, positions: Keys) -> list[bytes]:
        """Reads records one by one, to find the one that fails."""
        records: list[bytes] = []
        for position in positions.tolist():
            try:
                records += self._read(position, position + 1)
            except IndexError:
                raise FileError(
                    f"there is no record {position} in {self.file!r}, which has {self.length}. "
                    "Is it an older or newer file than the one that this part was made for?"
                ) from None
            except RuntimeError as error:
                damaged = FileError(
                    f"record {position} of {self.file!r} cannot be read: {error}. The file is "
                    "damaged; write or copy it anew."
                )
                # The package gives the chunk's offset only in its message.
                chunk = re.search(r"chunk at (\d+)", str(error))
                note_place(damaged, self.file, position, int(chunk[1]) if chunk else None)
                raise damaged from None
        return records


def _timed(values: Iterator[T]) -> Iterator[tuple[float, T]]:
    """Yields each value with the seconds that it took."""
    while True:
        began = perf_counter()
        try:
            value = next(values)
        except StopIteration:
            return
        yield perf_counter() - began, value


def _stamp(file: str, local: str) -> str:
    """A text that changes when the file changes, as far as that is known here."""
    try:
        return stamp_here(file, local, os.stat(local))
    except OSError:
        return ""


def _refusal(file: str, reader: Any) -> FileError:
    """Finds the reason why a file cannot be read."""
    reason = ""
    try:
        reader.close()
    except RuntimeError as error:
        reason = f": {error}" if str(error) else ""
    if not is_remote(file):
        try:
            with open(file, "rb"):
                pass
        except FileNotFoundError:
            return MissingFileError(f"there is no file {file!r}.")
        except OSError as error:
            return FileError(f"{file!r} cannot be read: {error.strerror}.")
    return FileError(
        f"{file!r} is no ArrayRecord file, or not a whole one{reason}. If it once was one, it "
        "has been cut short or damaged; write or copy it anew."
    )


@cache
def _first_process() -> int:
    """The process in which the package has started its threads."""
    return os.getpid()


def _is_forked() -> bool:
    """Whether the package's threads are in another process.

    Work for them may then wait for ever: for a lock that one of them held. Single records are read
    without them.
    """
    return os.getpid() != _first_process()


@cache
def _worth_of_threads() -> float:
    """The share of a run's time that is saved if threads do it."""
    # Handing work to threads costs half as much as the work, and a part of it is done by one
    # thread.
    return 0.9 - 1.4 / available_cores()


@cache
def _package() -> Any:
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        raise MissingPackageError(
            "`ArrayRecordDataSource` needs the package array_record", "arrayrecord"
        ) from error
    return array_record_module


def array_record_writer(path: str, options: str = "group_size:1") -> Any:
    """A writer of the package; records for reading in any order should each be a group."""
    return _package().ArrayRecordWriter(_for_the_package(path), options)


def _for_the_package(path: str) -> str:
    """A path as text, which the package needs."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise FileError(
            f"{path!r} is no text in UTF-8, and no ArrayRecord file can be called so: the package "
            "array_record takes paths as text."
        ) from None
    return path


def _options_text(options: dict[str, str] | None) -> str:
    if options is not None and not isinstance(options, dict):
        raise TypeError(
            f"reader_options are a dict, as {_RANDOM_ACCESS}, and got {type(options).__name__}: "
            f"{options!r}."
        )
    wanted = {**_RANDOM_ACCESS, **(options or {})}
    return ",".join(f"{name}:{value}" for name, value in wanted.items())


def _key_array(keys: Sequence[SupportsIndex] | Keys) -> Keys:
    array = np.asarray(keys)
    if array.dtype != np.int64:
        array = np.array(list(map(operator.index, keys)))
    return array


def _lengths(parts: list[FilePart], options: str, stamps: dict[str, str]) -> list[int]:
    """Looks up the lengths of the files that are read completely."""

    def length(part: FilePart) -> int:
        if part.take is not None:
            return part.take
        opened = _OpenFile(part.file, options)
        stamps[part.file] = opened.stamp
        return opened.length

    unknown = sum(part.take is None for part in parts)
    if unknown < 2:
        return list(map(length, parts))
    with ThreadPoolExecutor(min(unknown, _MOST_OPENING)) as pool:
        return list(pool.map(length, parts))
