"""The base class of sources over folders of shards: an index, and offsets in shards.

    shard    ┌ n ┬ places of n + 1 ┬ ... ┬ record 0 ┬ record 1 ┬ ... ┐

Numbers have four bytes, the lowest first. Records are read by key, in place.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from bushel.core.per_process import PerProcess, ProcessLock
from bushel.core.positions import Keys
from bushel.errors import FileError, RecordError, replaced_file
from bushel.files.local import ByteFile, OpenFiles
from bushel.files.paths import is_remote
from bushel.files.request_pool import MOST_REQUESTS, RequestPool
from bushel.sources.keyed import KeyedSource, by_part
from bushel.sources.shard_folder.index_file import FolderShard, path_of_index, read_index
from bushel.sources.shard_folder.unpacked_shards import plain_path, stored_path

# The limit of cached places in each process: four bytes for each record.
_MOST_BYTES_OF_PLACES = 64 << 20
# The most remote shards that are waited for in parallel.
_together = RequestPool(MOST_REQUESTS)


class OpenShard(NamedTuple):
    """A shard that is ready to be read: its local path, and the beginnings of its records."""

    path: str
    # An array; for a chunk in batches, its table of contents.
    bounds: Any


class _Listed(NamedTuple):
    stamp: str
    shards: list[FolderShard]
    ends: Keys


class ShardFolderSource(KeyedSource):
    """Records of the shards in an `index.json`.

    A pickle of a source has the path of the index and no index; the process that receives it reads
    that anew.
    """

    def __init__(self, folder: Any) -> None:
        self._path = path_of_index(folder, type(self).__name__)
        self._stamp = ""
        self._start()
        found = self._folder()
        self._length = int(found.ends[-1]) if len(found.ends) else 0
        self._stamp = found.stamp

    def _start(self) -> None:
        self._lock = ProcessLock()
        self._found: _Listed | None = None
        self._files = OpenFiles()
        self._opened = _OpenShards(self._open)

    @abstractmethod
    def _shards(self, told: dict[str, Any]) -> list[FolderShard]:
        """The shards in an index."""

    @abstractmethod
    def _decode(
        self, data: Sequence[bytes], shard: FolderShard, number: int, keys: Keys
    ) -> list[Any]:
        """Decodes records of one shard."""

    def _folder(self) -> _Listed:
        found = self._found
        if found is not None:
            return found
        with self._lock:
            if self._found is None:
                file, told = read_index(self._path)
                if self._stamp and file.stamp != self._stamp:
                    raise replaced_file(self._path)
                shards = self._shards(told)
                ends = np.fromiter(accumulate(s.records for s in shards), np.int64, len(shards))
                self._found = _Listed(file.stamp, shards, ends)
            return self._found

    @property
    def paths(self) -> list[str]:
        """The shards, in the order of their records."""
        return [stored_path(shard) for shard in self._folder().shards]

    def file_stamps(self) -> dict[str, str]:
        """For the index, a text that changes when it changes, as of its opening."""
        return {self._path: self._stamp}

    @property
    def known_bytes(self) -> int:
        """The number of bytes in all shards."""
        return sum(shard.bytes for shard in self._folder().shards)

    def __len__(self) -> int:
        return self._length

    def _records(self, keys: Keys) -> list[Any]:
        folder = self._folder()
        groups = list(by_part(keys, folder.ends))
        wanted = [(number, within) for number, _, within in groups]
        # Each remote shard takes a wait, so they are read in parallel.
        read: Callable[..., Iterable[list[Any]]] = (
            _together.each if is_remote(self._path) and len(wanted) > 1 else map
        )
        records: list[Any] = [None] * len(keys)
        found = read(lambda some: self._of_shard(*some), wanted)
        for (_, places, _), rows in zip(groups, found, strict=True):
            for place, row in zip(places.tolist(), rows, strict=True):
                records[place] = row
        return records

    def _of_shard(self, number: int, keys: Keys) -> list[Any]:
        """Reads records of one shard, by their numbers in it."""
        shard = self._folder().shards[number]
        opened, file = self._ready(number)
        starts = opened.bounds[keys].astype(np.int64)
        stops = opened.bounds[keys + 1].astype(np.int64)
        return self._decode(file.read_many(starts, stops), shard, number, keys)

    def _ready(self, number: int) -> tuple[OpenShard, ByteFile]:
        """A shard and its open file, unchanged."""
        opened = self._opened.get(number)
        file = self._files.get(opened.path)
        self._check_size(file, self._folder().shards[number])
        file.check()
        return opened, file

    def _open(self, number: int) -> OpenShard:
        """Opens a shard: finds it, or unpacks it, and reads the beginnings of its records."""
        shard = self._folder().shards[number]
        path = plain_path(shard, self._files)
        file = self._files.get(path)
        self._check_size(file, shard)
        return OpenShard(path, self._bounds(file, shard))

    def _check_size(self, file: ByteFile, shard: FolderShard) -> None:
        if file.size != shard.bytes:
            raise FileError(
                f"{shard.path!r} has {file.size:,} bytes, and {self._path!r} says {shard.bytes:,}. "
                "Copy the folder again: the index must belong to the same dataset as the shards."
            )

    def _bounds(self, file: ByteFile, shard: FolderShard) -> Any:
        """The beginnings of a shard's records, and the end of the last one."""
        stop = 4 * (shard.items + 2)
        if stop > file.size:
            raise self._broken(shard, f"it has no room for the places of {shard.items:,} records")
        numbers = np.frombuffer(file.read(0, stop), np.dtype("<u4"))
        bounds = numbers[1:].astype(np.uint32)
        if int(numbers[0]) != shard.items:
            raise self._broken(
                shard, f"it says that it has {int(numbers[0]):,} records, the index {shard.items:,}"
            )
        rising = bool((bounds[1:] >= bounds[:-1]).all())
        if not rising or bounds[0] < stop or bounds[-1] > file.size:
            raise self._broken(shard, "the places of its records are not inside of it")
        return bounds

    def _broken(self, shard: FolderShard, problem: str) -> FileError:
        return FileError(f"{shard.path!r} is damaged: {problem}. Copy or write it anew.")

    def _wrong(self, number: int, key: int, problem: object) -> RecordError:
        """The error about a record that cannot be decoded."""
        path, record, start = self._place(number, key)
        return RecordError(
            f"record {record:,} of {path!r}, which begins at byte {start:,}, cannot be read: "
            f"{problem}."
        )

    def _place(self, number: int, key: int) -> tuple[str, int, int]:
        shard = self._folder().shards[number]
        return stored_path(shard), key, int(self._opened.get(number).bounds[key])

    def place_of(self, key: int) -> tuple[str, int, int]:
        """The shard of a record, its number in it, and the byte at which it starts.

        For a shard that is compressed as a whole, the byte in its unpacked content.
        """
        ((number, _, within),) = by_part(self._checked([key]), self._folder().ends)
        return self._place(number, int(within[0]))

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_lock", "_found", "_files", "_opened")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def __repr__(self) -> str:
        folder = self._path.rpartition("/")[0] or "."
        shards = len(self._folder().shards)
        return (
            f"{type(self).__name__}({folder!r}, {shards:,} shard{'s' * (shards != 1)}, "
            f"{self._length:,} records)"
        )


class _OpenShards(PerProcess[int, OpenShard]):
    """The most recently used shards, with the places of their records."""

    def __init__(self, make: Callable[[int], OpenShard]) -> None:
        super().__init__(_MOST_BYTES_OF_PLACES)
        self._open = make

    def _make(self, key: int) -> OpenShard:
        return self._open(key)

    def _weigh(self, value: OpenShard) -> float:
        return float(value.bounds.nbytes) + 500
