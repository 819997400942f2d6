"""The files of tokens that `write` makes, with the lengths of records in files beside them."""

from typing import Any

import numpy as np

from bushel.core.per_process import PerProcess
from bushel.core.positions import Keys
from bushel.errors import FileError
from bushel.files.copies import local_path
from bushel.sources.arrays.mapped import MappedFiles
from bushel.sources.keyed import KeyedSource, by_part
from bushel.sources.written.manifest import Manifest
from bushel.sources.written.origins import read_origins


class TokenShards(KeyedSource):
    """The records of token files, by the lengths in the files beside them."""

    def __init__(self, manifest: Manifest) -> None:
        assert manifest.layout is not None
        self._shards = [shard for shard in manifest.shards if shard.records]
        self._paths = [manifest.path_of(shard.file) for shard in self._shards]
        self._indexes = [
            manifest.path_of(shard.index) if shard.index is not None else None
            for shard in self._shards
        ]
        if None in self._indexes:
            raise FileError(f"{manifest.path!r} does not say where the records of a shard begin.")
        self._ends: Keys = np.cumsum([shard.records for shard in self._shards], dtype=np.int64)
        dtype = manifest.layout.fields[0].dtype
        assert dtype is not None
        self._dtype: Any = dtype.newbyteorder("<")
        self._start()

    def _start(self) -> None:
        self._files, self._bounds = MappedFiles(self._paths), _TokenBounds()

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _records(self, keys: Keys) -> list[Any]:
        found: list[Any] = [None] * len(keys)
        for number, places, inside in by_part(keys, self._ends):
            tokens, bounds = self._opened(number)
            for place, record in zip(places.tolist(), inside.tolist(), strict=True):
                found[place] = tokens[bounds[record] : bounds[record + 1]]
        return found

    def _opened(self, number: int) -> tuple[Any, Any]:
        file = self._files.get(self._paths[number])
        file.check()
        index = self._indexes[number]
        assert index is not None
        bounds = self._bounds.get((index, self._shards[number].records))
        size = int(bounds[-1]) * self._dtype.itemsize
        if size != len(file.bytes):
            raise FileError(
                f"{self._paths[number]!r} has {len(file.bytes):,} bytes, and its records have "
                f"{size:,}. Copy it and {index!r} again."
            )
        return np.ndarray((int(bounds[-1]),), self._dtype, file.bytes.data), bounds

    def place_of(self, key: int) -> tuple[str, int, int]:
        """The file of a record, its number in it, and the byte at which it starts."""
        ((number, _, inside),) = by_part(self._checked([key]), self._ends)
        _, bounds = self._opened(number)
        record = int(inside[0])
        return self._paths[number], record, int(bounds[record]) * self._dtype.itemsize

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _OPENED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()


_OPENED = ("_files", "_bounds")


class _TokenBounds(PerProcess[tuple[str, int], Any]):
    def __init__(self) -> None:
        super().__init__(most=64)

    def _make(self, key: tuple[str, int]) -> Any:
        path, records = key
        lengths = np.asarray(read_origins(local_path(path), records).columns["lengths"])
        if len(lengths) != records or (lengths < 0).any():
            raise FileError(f"{path!r} is damaged: it has no lengths. Copy it anew.")
        return np.concatenate([[0], np.cumsum(lengths)])
