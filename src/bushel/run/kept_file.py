"""Positions on disk: plain numbers after a header that says of which pipeline they are.

BUSHELKP  length of the header  header (JSON)  positions, 64-bit integers

The header has their checksum, too.
"""

import json
import os
import struct
import zlib
from typing import Any

import numpy as np

from bushel.core.positions import Positions
from bushel.errors import FileError
from bushel.files.limits import refusal
from bushel.files.whole import written_whole

_MAGIC = b"BUSHELKP"
_VERSION = 2
_MOST_HEADER = 1 << 24


def read_kept(path: str, of: Any, length: int) -> Positions | None:
    """The positions in a file; None where there is none of this pipeline.

    What is no file of ours is an error: it would be overwritten.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(len(_MAGIC))
            if start != _MAGIC:
                raise FileError(
                    f"{path!r} is no file that `compact` made. Give `cache` another path, or "
                    "remove that file."
                )
            header, count = _header_of(file.read(8), file, size)
            if not isinstance(header, dict):
                return None
            check = header.pop("check", None)
            if header != {"version": _VERSION, "of": of, "count": count}:
                return None
            kept = np.fromfile(file, dtype="<i8", count=count).astype(np.int64, copy=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path!r} cannot be read: {error.strerror}.") from None
    # It is data: positions in order, and within the dataset, or not ours.
    whole = len(kept) == count and _check_of(kept) == check
    in_order = bool((np.diff(kept) > 0).all())
    within = not len(kept) or (kept[0] >= 0 and kept[-1] < length)
    return kept if whole and in_order and within else None


def _check_of(kept: Positions) -> int:
    return zlib.crc32(np.ascontiguousarray(kept, dtype="<i8").data)


def _header_of(length: bytes, file: Any, size: int) -> tuple[Any, int]:
    """The header, and how many positions are after it; no header where it is damaged."""
    if len(length) < 8:
        return None, 0
    (most,) = struct.unpack("<Q", length)
    if most > min(_MOST_HEADER, size):
        return None, 0
    try:
        header = json.loads(file.read(most))
    except (ValueError, RecursionError):
        return None, 0
    whole, rest = divmod(size - file.tell(), 8)
    return (None, 0) if rest else (header, whole)


def write_kept(path: str, of: Any, kept: Positions) -> None:
    """Keeps positions in a file, which is there as a whole or not at all."""
    told = {"version": _VERSION, "of": of, "count": len(kept), "check": _check_of(kept)}
    header = json.dumps(told).encode()
    path = os.path.abspath(path)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with written_whole(path) as out:
            out.write(_MAGIC + struct.pack("<Q", len(header)) + header)
            out.write(np.ascontiguousarray(kept, dtype="<i8").data)
    except OSError as error:
        raise FileError(f"{path!r} cannot be written: {refusal(error, path)}.") from None
