"""`MDSDataSource`: shards that MosaicML Streaming wrote, with random access."""

import struct
from collections.abc import Sequence
from typing import Any

from bushel.core.frozen import frozen
from bushel.core.positions import Keys
from bushel.errors import FileError, PlanError
from bushel.sources.shard_folder.index_file import (
    MOST_SHARD_BYTES,
    FolderShard,
    count,
    damaged,
    path_in,
)
from bushel.sources.shard_folder.mds_values import Decode, decoder_of
from bushel.sources.shard_folder.source import ShardFolderSource


@frozen
class _MDSColumn:
    name: str
    # None if each value has its own size.
    size: int | None
    # None if the column is not read.
    make: Decode | None


class MDSDataSource(ShardFolderSource):
    """The records of a folder of MDS shards (MosaicML Streaming), in the order of its index.

    A record is a dict. Numbers, text, bytes, JSON and arrays are what was written; pictures of the
    encoding `pil` are arrays of their pixels. Those of `jpeg` and `png` are the bytes of a file.

    Args:
        folder: The folder that has `index.json` in it, here or far away. Shards that are
            compressed (zstd, gz, bz2, br, snappy) are unpacked once, into the cache folder.
        columns: Which columns to read; all by default.
        decode: Whether `jpeg` and `png` are arrays of height × width × 3 instead of bytes. That
            needs Pillow.
        allow_pickle: Whether to read columns of the encoding `pkl`. Reading a pickle can run any
            code, so this is for shards of people whom you trust.
    """

    def __init__(
        self,
        folder: Any,
        *,
        columns: Sequence[str] | None = None,
        decode: bool = False,
        allow_pickle: bool = False,
    ) -> None:
        self._columns = None if columns is None else tuple(columns)
        self._decode_pictures, self._allow_pickle = decode, allow_pickle
        super().__init__(folder)

    def _shards(self, told: dict[str, Any]) -> list[FolderShard]:
        listed = told.get("shards")
        if not isinstance(listed, list):
            raise damaged(self._path, "it has no list of shards")
        layouts: dict[str, tuple[_MDSColumn, ...]] = {}
        return [self._shard(shard, number, layouts) for number, shard in enumerate(listed)]

    def _shard(
        self, told: Any, number: int, layouts: dict[str, tuple[_MDSColumn, ...]]
    ) -> FolderShard:
        if not isinstance(told, dict):
            raise damaged(self._path, f"shard {number} is no object")
        if told.get("format") != "mds":
            raise FileError(
                f"shard {number} of {self._path!r} has the format {told.get('format')!r:.50}, and "
                "not 'mds'. Files of JSON lines and CSV are read without the index: name them, "
                'as `bushel.open("*.jsonl")`.'
            )
        if told.get("version") != 2:
            raise FileError(
                f"shard {number} of {self._path!r} has version {told.get('version')!r:.50} of MDS; "
                "bushel reads version 2."
            )
        raw, zipped = told.get("raw_data"), told.get("zip_data")
        if not isinstance(raw, dict) or not (zipped is None or isinstance(zipped, dict)):
            raise damaged(self._path, f"shard {number} does not say which file it is")
        packed = None
        if zipped is not None:
            packed = path_in(self._path, zipped.get("basename")), str(told.get("compression"))
        kinds = [told.get(f"column_{name}") for name in ("names", "encodings", "sizes")]
        key = repr(kinds)
        if key not in layouts:
            layouts[key] = self._layout(number, *kinds)
        records = count(self._path, told.get("samples"), "`samples`", MOST_SHARD_BYTES)
        return FolderShard(
            path=path_in(self._path, raw.get("basename")),
            records=records,
            items=records,
            bytes=count(self._path, raw.get("bytes"), "`bytes`", MOST_SHARD_BYTES),
            packed=packed,
            layout=layouts[key],
        )

    def _layout(
        self, number: int, names: Any, encodings: Any, sizes: Any
    ) -> tuple[_MDSColumn, ...]:
        lists = (names, encodings, sizes)
        if not all(isinstance(some, list) for some in lists) or len(set(map(len, lists))) > 1:
            raise damaged(self._path, f"the columns of shard {number} are not told")
        if not all(isinstance(text, str) for text in names + encodings):
            raise damaged(self._path, f"the columns of shard {number} have no names")
        missing = [name for name in self._columns or () if name not in names]
        if missing:
            raise PlanError(
                f"there is no column {missing[0]!r} in {self._path!r}; there are "
                f"{', '.join(map(repr, names))}."
            )
        columns = []
        for name, encoding, size in zip(names, encodings, sizes, strict=True):
            if self._columns is not None and name not in self._columns:
                columns.append(_MDSColumn(name, _size(size), None))
                continue
            try:
                known, make = decoder_of(encoding, self._decode_pictures, self._allow_pickle)
            except ValueError as error:
                raise FileError(
                    f"column {name!r} of {self._path!r}, of the encoding {encoding!r:.50}, {error}."
                ) from None
            if _size(size) != known:
                raise damaged(self._path, f"column {name!r} should have {known} bytes, not {size}")
            columns.append(_MDSColumn(name, known, make))
        return tuple(columns)

    def _decode(
        self, data: Sequence[bytes], shard: FolderShard, number: int, keys: Keys
    ) -> list[Any]:
        records = []
        for key, record in zip(keys.tolist(), data, strict=True):
            try:
                records.append(_record(record, shard.layout))
            except MemoryError:
                raise
            except Exception as error:  # Each encoding has its own errors.
                raise self._wrong(number, key, error) from error
        return records


def _size(told: Any) -> int | None:
    return told if type(told) is int and 0 <= told <= MOST_SHARD_BYTES else None


def _record(data: bytes, columns: Sequence[_MDSColumn]) -> dict[str, Any]:
    """A record: the sizes of values without a fixed one, and then all values."""
    unknown = sum(column.size is None for column in columns)
    sizes = iter(struct.unpack_from(f"<{unknown}I", data))
    start = 4 * unknown
    record = {}
    for column in columns:
        stop = start + (next(sizes) if column.size is None else column.size)
        if stop > len(data):
            raise ValueError(f"its column {column.name!r} goes on after its end")
        if column.make is not None:
            record[column.name] = column.make(data[start:stop])
        start = stop
    if start != len(data):
        raise ValueError(f"it should have {start:,} bytes, and has {len(data):,}")
    return record
