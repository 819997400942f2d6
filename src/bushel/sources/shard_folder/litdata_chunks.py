"""Compressed litdata chunks: in batches of records, or as an Arrow table."""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bushel.core.per_process import LastUsed
from bushel.core.positions import Keys, grouped
from bushel.files.local import ByteFile
from bushel.sources.arrow.package import arrow
from bushel.sources.indexed_unpacked import zstd_unpacker

# A table is followed by its length and this mark.
_TABLE_END = struct.Struct("<I8s")
_TABLE_MARK = b"LDARW01\0"
_PIECE = 1 << 16
MAGIC = b"LDFZ01\0\0"
# After the mark: the version, the number of records, records per batch, the number of batches.
_HEAD = struct.Struct("<8s4I")
# Of a batch: its first record, their number, its place, its packed and unpacked size.
_BATCH = np.dtype(
    [("first", "<u4"), ("number", "<u4"), ("start", "<u8"), ("size", "<u4"), ("of", "<u4")]
)


class Batched(NamedTuple):
    """The records of a chunk: the batch of each, and its start and end in the unpacked batch."""

    bounds: Any
    batches: Any

    @property
    def nbytes(self) -> int:
        return int(self.bounds.nbytes + self.batches.nbytes)


def read_batched(file: ByteFile, items: int) -> Batched:
    """The table of contents of a chunk in batches. Raises a ValueError if it is invalid."""
    _, version, records, _, number = _HEAD.unpack(file.read(0, min(file.size, _HEAD.size)))
    if version != 1 or records != items:
        raise ValueError(f"it has {records:,} records in version {version}, not {items:,} in 1")
    middle = _HEAD.size + 4 * (items + 1)
    stop = middle + _BATCH.itemsize * number
    if stop > file.size:
        raise ValueError("its table of contents goes on after its end")
    bounds = np.frombuffer(file.read(_HEAD.size, middle), "<u4").astype(np.int64)
    batches = np.frombuffer(file.read(middle, stop), _BATCH)
    firsts = batches["first"].astype(np.int64)
    ends = firsts + batches["number"]
    whole = [0, *ends.tolist()] == [*firsts.tolist(), items]
    # Not by a sum, which could overflow.
    starts = batches["start"]
    inside = bool((starts <= file.size).all() and (batches["size"] <= file.size - starts).all())
    if not whole or not inside or bounds[0] or (bounds[1:] < bounds[:-1]).any():
        raise ValueError("its table of contents is not that of its records")
    if (bounds[ends] - bounds[firsts] != batches["of"]).any():
        raise ValueError("its batches do not have the sizes of their records")
    return Batched(bounds, batches)


class BatchCache(LastUsed[tuple[int, int], bytes]):
    """The most recently unpacked batches."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)

    def _weigh(self, value: bytes) -> float:
        return len(value)


def read_from_batches(
    table: Batched, file: ByteFile, keys: Keys, number: int, cache: BatchCache
) -> list[bytes]:
    """The bytes of records; each of their batches is unpacked once."""
    which = np.searchsorted(table.batches["first"], keys, side="right") - 1
    data: list[bytes] = [b""] * len(keys)
    for batch, places in grouped(which):
        unpacked = cache.find((number, batch))
        if unpacked is None:
            unpacked = _unpacked(table.batches[batch], file)
            cache.keep((number, batch), unpacked)
        base = int(table.bounds[table.batches[batch]["first"]])
        for place in places.tolist():
            start, stop = table.bounds[keys[place]] - base, table.bounds[keys[place] + 1] - base
            data[place] = unpacked[start:stop]
    return data


def _unpacked(batch: Any, file: ByteFile) -> bytes:
    start, size, of = int(batch["start"]), int(batch["size"]), int(batch["of"])
    packed, unpacker, data = file.read(start, start + size), zstd_unpacker(), bytearray()
    # In steps, as a few bytes may become very many.
    for first in range(0, size, _PIECE):
        data += unpacker.decompress(packed[first : first + _PIECE])
        if len(data) > of or unpacker.eof:
            break
    if len(data) != of:
        raise ValueError(f"a batch becomes {len(data):,} bytes when unpacked, and should {of:,}")
    return bytes(data)


class TableCache(LastUsed[int, Any]):
    """The most recently read tables."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)

    def _weigh(self, value: Any) -> float:
        return float(value.nbytes)


def is_table(file: ByteFile, start: int) -> bool:
    """Whether a chunk is a table from a byte on."""
    stop = file.size - _TABLE_END.size
    if stop < start:
        return False
    length, mark = _TABLE_END.unpack(file.read(stop, file.size))
    return bool(mark == _TABLE_MARK and start + length == stop)


def rows_of_table(
    file: ByteFile, start: int, items: int, keys: Keys, number: int, cache: TableCache
) -> list[Any]:
    """The rows of a chunk that is a table from a byte on."""
    table = cache.find(number)
    if table is None:
        stop = file.size - _TABLE_END.size
        pyarrow = arrow("chunks of litdata that are compressed as tables")
        table = pyarrow.ipc.open_file(pyarrow.py_buffer(file.read(start, stop))).read_all()
        table.validate(full=True)  # So that no damaged offset is followed.
        if table.num_rows != items:
            raise ValueError(f"its table has {table.num_rows:,} rows, and not {items:,}")
        cache.keep(number, table)
    take: Callable[[Any], Any] = table.take
    rows: list[Any] = take(keys).to_pylist()
    return rows
