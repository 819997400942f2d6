"""Compressed files of lines, TFRecord or tar: unpacked once into the cache folder, and read there.

A compressed file has to be unpacked from its beginning, whichever record is wanted.
"""

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from bushel.errors import MissingPackageError, RecordError
from bushel.files.copies import made_once
from bushel.files.local import ByteFile
from bushel.files.progress_line import ProgressLine
from bushel.sources.endings import COMPRESSED, compression_of

HEAD_BYTES = 12
_CHUNK = 1 << 20
# The most bytes that are unpacked at once, as a few bytes may become very many.
_AT_ONCE = 1 << 16


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def zstd_unpacker() -> _Unpacker:
    """A function that decompresses one piece of zstd."""
    try:
        import zstandard
    except ImportError:
        raise MissingPackageError(
            "files compressed by zstd need the package `zstandard`, which is not installed", "zstd"
        ) from None
    unpacker: _Unpacker = zstandard.ZstdDecompressor().decompressobj()
    return unpacker


def _bzip2_unpacker() -> _Unpacker:
    import bz2  # Only for those who have such files: it loads a library.

    return bz2.BZ2Decompressor()


def _xz_unpacker() -> _Unpacker:
    import lzma

    return lzma.LZMADecompressor()


# The first bytes of compressed files, which names may not tell.
_UNPACKERS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "bzip2": _bzip2_unpacker,
    "xz": _xz_unpacker,
    "zstd": zstd_unpacker,
}


def unpacked(file: ByteFile, is_plain: Callable[[bytes], bool] = lambda head: False) -> str:
    """The path of a file's contents: its own, or that of a copy if it is compressed.

    `is_plain` tells whether the first bytes of a file are the beginning of records.
    """
    head = file.read(0, min(file.size, HEAD_BYTES))
    compression = compression_of(head)
    if compression is None or is_plain(head):
        return file.path
    name, unpacker = compression.name, _UNPACKERS[compression.name]
    if name == "bzip2" and not file.path.lower().endswith(".bz2"):
        return file.path  # Its first bytes are letters, with which a text may begin.
    # Some messages show the copy's name, so it contains that of the file.
    base = os.path.basename(file.path)
    if base.lower().endswith((*COMPRESSED, ".tgz")):
        base = os.path.splitext(base)[0]
    why = f"is compressed by {name}, so records cannot be reached one by one. It is unpacked once,"
    return made_once(file, "unpacked", base, why, lambda: _pieces(file, name, unpacker))


def _pieces(file: ByteFile, name: str, unpacker: Callable[[], _Unpacker]) -> Iterator[bytes]:
    """The contents of a compressed file, which may have several parts."""
    current: _Unpacker | None = None
    with ProgressLine(f"unpacking {os.path.basename(file.path)}", file.size) as progress:
        for start in range(0, file.size, _CHUNK):
            read = file.read(start, min(start + _CHUNK, file.size))
            for first in range(0, len(read), _AT_ONCE):
                data = read[first : first + _AT_ONCE]
                while data:
                    if current is None:
                        # Some programs fill the end of a file with zeros.
                        data = data.lstrip(b"\0")
                        if not data:
                            break
                        current = unpacker()
                    try:
                        piece = current.decompress(data)
                    except Exception as error:  # Each library has its own errors.
                        raise RecordError(
                            f"{file.path!r} is damaged: {name} cannot unpack what lies after "
                            f"byte {start + first:,} ({error})."
                        ) from error
                    data = b""
                    if current.eof:
                        data, current = current.unused_data, None
                    yield piece
            progress.to(start)
    if current is not None:
        raise RecordError(
            f"{file.path!r} is cut short: what was compressed by {name} does not end with the "
            f"file, at byte {file.size:,}."
        )
