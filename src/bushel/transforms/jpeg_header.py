"""Reads the header of a JPEG file: its size and encoding."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.errors import RecordError

# The bytes of a file; as an array they are one row of uint8.
Encoded: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

_START = b"\xff\xd8"
_END = b"\xff\xd9"
_START_OF_SCAN = 0xDA
_NO_FRAME = (0xC4, 0xC8, 0xCC)  # within the numbers of frames, and something else
_SEQUENTIAL = (0xC0, 0xC1)


class Header(NamedTuple):
    """The size of a picture, where it is written, and how its pixels follow.

    `rows_apart` is the height of the rows of blocks in which all of the file is stored, one after
    the other from the top; None where it is not, as in progressive files.
    """

    height: int
    width: int
    height_at: int
    rows_apart: int | None


def read_header(data: bytes) -> Header:
    """Reads the header of a JPEG file and sees that the file has an end."""
    if data[:2] != _START:
        raise RecordError(
            f"these {len(data):,} bytes are no JPEG file: they begin with {data[:4]!r}, and not "
            f"with {_START!r}."
        )
    at = 2
    header: Header | None = None
    components = 0
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        if marker == 0xFF:  # one that fills
            at += 1
            continue
        segment = data[at + 4 : at + 2 + length]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME and len(segment) >= 6:
            components = segment[5]
            across_and_down = segment[7 : 6 + 3 * components : 3]
            tallest = max((sampling & 15 for sampling in across_and_down), default=0)
            header = Header(
                height=segment[1] << 8 | segment[2],
                width=segment[3] << 8 | segment[4],
                height_at=at + 5,
                rows_apart=8 * tallest if marker in _SEQUENTIAL and tallest else None,
            )
        elif marker == _START_OF_SCAN and header is not None and segment:
            if data.rfind(_END, at) < 0 or not header.height or not header.width:
                break
            # A scan of some of the components is followed by others, from the top again.
            return header if segment[0] == components else header._replace(rows_apart=None)
        at += 2 + length
    raise RecordError(f"this JPEG file of {len(data):,} bytes is cut off or damaged.")


def shortened(data: bytes, header: Header, height: int) -> bytearray:
    """A copy whose header says that the picture is less high: a decoder stops there."""
    copy = bytearray(data)
    copy[header.height_at : header.height_at + 2] = height.to_bytes(2, "big")
    return copy
