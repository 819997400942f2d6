"""`LitDataDataSource`: chunks that `litdata.optimize` wrote, with random access."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.positions import Keys
from bushel.errors import BushelError, FileError, PlanError
from bushel.files.local import ByteFile
from bushel.sources.shard_folder.index_file import (
    MOST_SHARD_BYTES,
    FolderShard,
    count,
    damaged,
    path_in,
)
from bushel.sources.shard_folder.litdata_chunks import (
    MAGIC,
    BatchCache,
    Batched,
    TableCache,
    is_table,
    read_batched,
    read_from_batches,
    rows_of_table,
)
from bushel.sources.shard_folder.litdata_tree import Build, tree_of
from bushel.sources.shard_folder.litdata_values import Decode, decoder_of, token_type
from bushel.sources.shard_folder.source import OpenShard, ShardFolderSource

# The limit of unpacked batches, and tables, in each process.
_KEPT_BYTES = 128 << 20


@frozen
class _Leaves:
    """The structure of records: leaves, and the function that builds a record from them."""

    makes: tuple[Decode, ...]
    build: Build
    # For records that are windows of tokens.
    tokens: np.dtype[Any] | None


class LitDataDataSource(ShardFolderSource):
    """The records of a folder that `litdata.optimize` wrote, in the order of its index.

    A record is what was given to litdata: dicts, lists and tuples of numbers, text, bytes and
    arrays. Tensors are arrays. Pictures that were stored as files are the bytes of these.

    Args:
        folder: The folder that has `index.json` in it, here or far away. Chunks that are
            compressed as a whole are unpacked once, into the cache folder; those that are
            compressed inside are read where they lie (the extra `zstd` or `arrow`).
        block_size: For tokens (written with `TokensLoader`): how many a record has. The rest of a
            chunk that fills no record is left out, as litdata does it.
        decode: Whether pictures that are files (`jpeg`, `image`) are arrays of height × width × 3
            instead of bytes. That needs Pillow.
        allow_pickle: Whether to read leaves that litdata has pickled. Reading a pickle can run any
            code, so this is for chunks of people whom you trust.
    """

    def __init__(
        self,
        folder: Any,
        *,
        block_size: int | None = None,
        decode: bool = False,
        allow_pickle: bool = False,
    ) -> None:
        if block_size is not None and (type(block_size) is not int or block_size < 1):
            raise PlanError(f"`block_size` is a number of tokens, and got {block_size!r:.50}.")
        self._block_size = block_size
        self._decode_pictures, self._allow_pickle = decode, allow_pickle
        super().__init__(folder)

    def _start(self) -> None:
        super()._start()
        self._batches, self._tables = BatchCache(_KEPT_BYTES), TableCache(_KEPT_BYTES)

    def _shards(self, told: dict[str, Any]) -> list[FolderShard]:
        chunks, config = told.get("chunks"), told.get("config")
        if not isinstance(chunks, list) or not isinstance(config, dict):
            raise damaged(self._path, "it has no chunks, or does not say what they hold")
        layout = self._layout(config)
        packed = config.get("compression")
        if packed is not None and not isinstance(packed, str):
            raise damaged(self._path, f"`compression` is {packed!r:.50}")
        inside = config.get("compression_level") == "batch"
        return [self._chunk(chunk, layout, None if inside else packed) for chunk in chunks]

    def _layout(self, config: dict[str, Any]) -> _Leaves:
        if config.get("encryption") is not None:
            raise FileError(
                f"the chunks of {self._path!r} are encrypted ({config['encryption']!r:.100}); "
                "bushel reads no such. Write them without `encryption=`."
            )
        loader, formats = config.get("item_loader"), config.get("data_format")
        if loader == "ParquetLoader":
            raise FileError(
                f"{self._path!r} is about Parquet files, which are read without it: name them, as "
                '`bushel.open("*.parquet")`.'
            )
        if not isinstance(formats, list) or not all(isinstance(name, str) for name in formats):
            raise damaged(self._path, "it does not say what its records are made of")
        if loader == "TokensLoader" or self._block_size is not None:
            return self._layout_of_tokens(loader, formats)
        try:
            leaves, build = tree_of(config.get("data_spec"))
        except ValueError as error:
            raise damaged(self._path, str(error)) from None
        if leaves != len(formats):
            raise damaged(self._path, f"records have {leaves} parts, and {len(formats)} formats")
        makes = []
        for name in formats:
            try:
                makes.append(decoder_of(name, self._decode_pictures, self._allow_pickle))
            except ValueError as error:
                raise FileError(
                    f"the format {name!r:.50} of a part of the records of {self._path!r} {error}."
                ) from None
        return _Leaves(tuple(makes), build, None)

    def _layout_of_tokens(self, loader: Any, formats: list[str]) -> _Leaves:
        if loader != "TokensLoader":
            raise PlanError(
                f"{self._path!r} has records, and no tokens to be cut into blocks of "
                f"{self._block_size}. Leave `block_size` out."
            )
        if self._block_size is None:
            raise PlanError(
                f"{self._path!r} has tokens, and a record is a block of as many as you say: "
                "`bushel.open(folder, block_size=2049)`."
            )
        if len(formats) != 1:
            raise damaged(self._path, f"tokens have one format, and here are {len(formats)}")
        try:
            return _Leaves((), next, token_type(formats[0]))
        except ValueError as error:
            raise damaged(self._path, str(error)) from None

    def _chunk(self, told: Any, layout: _Leaves, packed: str | None) -> FolderShard:
        if not isinstance(told, dict):
            raise damaged(self._path, "a chunk is no object")
        path = path_in(self._path, told.get("filename"))
        items = count(self._path, told.get("chunk_size"), "`chunk_size`", MOST_SHARD_BYTES)
        records = items
        if layout.tokens is not None and self._block_size is not None:
            tokens = count(self._path, told.get("dim"), "`dim`, the number of tokens,")
            records = tokens // self._block_size
        size = count(self._path, told.get("chunk_bytes"), "`chunk_bytes`", MOST_SHARD_BYTES)
        return FolderShard(path, records, items, size, (path, packed) if packed else None, layout)

    def _bounds(self, file: ByteFile, shard: FolderShard) -> Any:
        if file.read(0, min(8, file.size)) == MAGIC:
            try:
                return read_batched(file, shard.items)
            except (ValueError, struct.error) as error:
                raise self._broken(shard, str(error)) from None
        bounds = super()._bounds(file, shard)
        tokens = shard.layout.tokens
        if tokens is not None and self._block_size is not None:
            needed = shard.records * self._block_size * tokens.itemsize
            if int(bounds[0]) + needed > file.size:
                raise self._broken(shard, "it has fewer tokens than the index says")
        return bounds

    def _of_shard(self, number: int, keys: Keys) -> list[Any]:
        shard = self._folder().shards[number]
        opened, file = self._ready(number)
        if isinstance(opened.bounds, Batched):
            try:
                data = read_from_batches(opened.bounds, file, keys, number, self._batches)
            except BushelError:
                raise
            except Exception as error:  # Errors of the package that unpacks.
                raise self._wrong(number, int(keys[0]), error) from error
            return self._decode(data, shard, number, keys)
        if shard.layout.tokens is not None:
            return self._windows(file, opened, shard.layout.tokens, keys)
        if opened.bounds[0] == opened.bounds[-1] and is_table(file, int(opened.bounds[0])):
            return self._rows(file, opened, shard, number, keys)
        return super()._of_shard(number, keys)

    def _windows(
        self, file: ByteFile, opened: OpenShard, tokens: np.dtype[Any], keys: Keys
    ) -> list[Any]:
        size = (self._block_size or 0) * tokens.itemsize
        starts = int(opened.bounds[0]) + keys * size
        return [
            np.frombuffer(data, tokens).copy() for data in file.read_many(starts, starts + size)
        ]

    def _rows(
        self, file: ByteFile, opened: OpenShard, shard: FolderShard, number: int, keys: Keys
    ) -> list[Any]:
        start = int(opened.bounds[-1])
        try:
            return rows_of_table(file, start, shard.items, keys, number, self._tables)
        except BushelError:
            raise
        except Exception as error:  # pyarrow has a dozen; of memory, for wrong lengths.
            raise self._broken(shard, str(error)) from error

    def _decode(
        self, data: Sequence[bytes], shard: FolderShard, number: int, keys: Keys
    ) -> list[Any]:
        layout: _Leaves = shard.layout
        records = []
        for key, record in zip(keys.tolist(), data, strict=True):
            try:
                records.append(layout.build(iter(list(_leaves(record, layout.makes)))))
            except MemoryError:
                raise
            except Exception as error:  # Each format has its own errors.
                raise self._wrong(number, key, error) from error
        return records

    def _place(self, number: int, key: int) -> tuple[str, int, int]:
        shard, opened = self._folder().shards[number], self._opened.get(number)
        if isinstance(opened.bounds, Batched):
            batches = opened.bounds.batches
            batch = int(np.searchsorted(batches["first"], key, side="right")) - 1
            return shard.path, key, int(batches["start"][batch])
        if shard.layout.tokens is not None:
            size = (self._block_size or 0) * shard.layout.tokens.itemsize
            return shard.path, key, int(opened.bounds[0]) + key * size
        return super()._place(number, key)


def _leaves(data: bytes, makes: Sequence[Decode]) -> Iterable[Any]:
    """The values of a record, which begins with the sizes of all."""
    sizes = struct.unpack_from(f"<{len(makes)}I", data)
    start = 4 * len(makes)
    for size, make in zip(sizes, makes, strict=True):
        if start + size > len(data):
            raise ValueError("a part of it goes on after its end")
        yield make(data[start : start + size])
        start += size
    if start != len(data):
        raise ValueError(f"it should have {start:,} bytes, and has {len(data):,}")
