"""Shards compressed as a whole: unpacked once, into the cache folder."""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from bushel.errors import FileError, MissingPackageError, RecordError
from bushel.files.copies import made_once
from bushel.files.local import ByteFile, OpenFiles
from bushel.files.paths import is_remote
from bushel.files.progress_line import ProgressLine
from bushel.sources.indexed_unpacked import unpacked
from bushel.sources.shard_folder.index_file import FolderShard

# Compressions that files show by their first bytes.
_TOLD_BY_CONTENT = ("bz2", "gz", "zstd")
_BY_CRAMJAM = ("br", "snappy")


def stored_path(shard: FolderShard) -> str:
    """The path of a shard's file that exists: the compressed one, or the unpacked one."""
    if shard.packed is None or (not is_remote(shard.path) and os.path.exists(shard.path)):
        return shard.path
    return shard.packed[0]


def plain_path(shard: FolderShard, files: OpenFiles) -> str:
    """The path of a shard for reading: its own, or that of an unpacked copy."""
    if shard.packed is None:
        return shard.path
    path, compression = shard.packed
    if path != shard.path and stored_path(shard) == shard.path:
        return shard.path  # It was unpacked by another program.
    # With a level, as in "zstd:7", which matters only for compression.
    name = compression.partition(":")[0]
    if name in _TOLD_BY_CONTENT:
        return unpacked(files.get(path))
    if name in _BY_CRAMJAM:
        file = files.get(path)
        why = f"is compressed by {name}, so records cannot be reached one by one. It is unpacked "
        base = os.path.basename(shard.path)
        return made_once(
            file, "unpacked", base, why + "once,", lambda: _whole(file, name, shard.bytes)
        )
    raise FileError(
        f"{path!r} is compressed by {compression!r:.50}, which bushel does not unpack; it does "
        f"{', '.join(_TOLD_BY_CONTENT + _BY_CRAMJAM)}. Unpack it to {shard.path!r}."
    )


def _whole(file: ByteFile, name: str, size: int) -> Iterator[bytes]:
    """The content of a file that can only be unpacked as a whole: `size` bytes."""
    with ProgressLine(f"unpacking {os.path.basename(file.path)}", file.size) as progress:
        data = file.read(0, file.size)
        progress.to(file.size // 2)
        room = bytearray(size)
        unpack = _cramjam().snappy.decompress_raw_into if name == "snappy" else None
        try:
            written = (unpack or _cramjam().brotli.decompress_into)(data, room)
        except Exception as error:
            raise RecordError(
                f"{file.path!r} is damaged: {name} cannot unpack it to {size:,} bytes ({error})."
            ) from error
    if written != size:
        raise RecordError(
            f"{file.path!r} becomes {written:,} bytes when it is unpacked, and the index says "
            f"{size:,}."
        )
    yield bytes(room)


@cache
def _cramjam() -> Any:
    try:
        import cramjam
    except ImportError as error:
        raise MissingPackageError(
            "shards compressed by Brotli or Snappy need the package cramjam", "mds"
        ) from error
    return cramjam
