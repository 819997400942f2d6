"""Images that are stored as pixels: width, height, mode, and the values."""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

# The modes of Pillow: the type of a value, and values per pixel (0: no axis for them).
_MODES: dict[str, tuple[str, int]] = {
    "L": ("u1", 0),
    "P": ("u1", 0),
    "LA": ("u1", 2),
    "La": ("u1", 2),
    "PA": ("u1", 2),
    "RGB": ("u1", 3),
    "YCbCr": ("u1", 3),
    "LAB": ("u1", 3),
    "HSV": ("u1", 3),
    "RGBA": ("u1", 4),
    "RGBa": ("u1", 4),
    "RGBX": ("u1", 4),
    "CMYK": ("u1", 4),
    "I": ("<i4", 0),
    "F": ("<f4", 0),
    "I;16": ("<u2", 0),
    "I;16L": ("<u2", 0),
    "I;16B": (">u2", 0),
}
_HEAD = struct.Struct("<3I")


def pixels(data: bytes) -> npt.NDArray[Any]:
    """The pixels, as an array of height × width, or × the values of a pixel.

    >>> pixels(struct.pack("<3I", 2, 1, 3) + b"RGB" + bytes(range(6)))
    array([[[0, 1, 2],
            [3, 4, 5]]], dtype=uint8)
    """
    width, height, letters = _HEAD.unpack_from(data)
    start = _HEAD.size + letters
    mode = data[_HEAD.size : start].decode()
    if mode == "1":
        # Eight pixels in a byte; each line begins with a new byte.
        packed = np.frombuffer(data, np.uint8, offset=start).reshape(height, -(-width // 8))
        return np.unpackbits(packed, axis=1, count=width).astype(bool)
    if mode not in _MODES:
        raise ValueError(f"it has a picture of the mode {mode!r:.20}, which is not known")
    dtype, values = _MODES[mode]
    shape = (height, width, values) if values else (height, width)
    stored = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return stored.astype(stored.dtype.newbyteorder("="))
