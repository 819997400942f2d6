"""The only file that imports simplejpeg, OpenCV, Pillow; the buffer of each thread.

The first two decode alike, bit for bit, and Pillow does where nothing is scaled or grey.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.core.pillow import pillow_images
from bushel.errors import MissingPackageError
from bushel.transforms.jpeg_header import Header, shortened

Image: TypeAlias = npt.NDArray[np.uint8]
# Decodes at one over the second argument of its size (1, 2, 4 or 8): at least as many rows, of
# the picture as it is stored, as the third says, counted from the top.
Decode: TypeAlias = Callable[[bytes, Header, int, int], Image]
# Gives the image in another height and width.
Resize: TypeAlias = Callable[[Image, tuple[int, int]], Image]
# Gives a copy of the image with left and right exchanged.
Mirror: TypeAlias = Callable[[Image], Image]


class Decoder(NamedTuple):
    """What decodes a file, resizes an image and mirrors it.

    With `lends`, what is decoded has to be copied: it cannot be written to, or is overwritten
    when the same thread decodes the next.
    """

    name: str
    decode: Decode
    resize: Resize
    mirror: Mirror
    lends: bool = False


class _DecoderMemory(threading.local):
    """Memory that a thread decodes into, picture after picture: new pages cost a quarter more."""

    # What a larger picture needs is not kept: one of them would stay for ever.
    MOST_BYTES = 1 << 24

    def __init__(self) -> None:
        self._kept: Image = np.empty(0, np.uint8)

    def image(self, height: int, width: int) -> Image:
        count = 3 * height * width
        if count > self.MOST_BYTES:
            return np.empty((height, width, 3), np.uint8)
        if count > len(self._kept):
            self._kept = np.empty(count, np.uint8)
        return self._kept[:count].reshape(height, width, 3)


@cache
def decoder() -> Decoder:
    """The quickest of those that are installed."""
    makers = (with_simplejpeg, with_opencv, with_pillow)
    for make in makers:
        try:
            return make()
        except ImportError:
            continue
    raise MissingPackageError(
        "decoding JPEG files needs one of the packages pillow, opencv-python-headless and "
        "simplejpeg",
        "images",
    )


def with_simplejpeg() -> Decoder:
    """It decodes no further down than needed, and leaves resizing to one of the others."""
    import simplejpeg

    memory = _DecoderMemory()

    def decode(data: bytes, header: Header, reduction: int, rows: int) -> Image:
        height, width = -(-header.height // reduction), -(-header.width // reduction)
        options = {"min_factor": reduction, "min_height": height, "min_width": width}
        apart = header.rows_apart
        # One row of blocks more than asked for: colours are smoothed across the border.
        stop = header.height if apart is None else (-(-rows // apart) + 1) * apart
        if stop >= header.height:
            image = memory.image(height, width)
            simplejpeg.decode_jpeg(data, "RGB", buffer=image, **options)
            return image
        height = options["min_height"] = -(-stop // reduction)
        image = memory.image(height, width)
        try:
            simplejpeg.decode_jpeg(shortened(data, header, stop), "RGB", buffer=image, **options)
        except ValueError as error:
            # What is said after the last row, of the rows that were not wanted.
            if "extraneous bytes before marker 0xd9" not in str(error):
                raise
        return image

    try:
        other = with_opencv()
    except ImportError:
        other = with_pillow()
    return Decoder("simplejpeg", decode, other.resize, other.mirror, lends=True)


def with_opencv() -> Decoder:
    import cv2

    # Decoded to red, green, blue where OpenCV knows how to; turned round where it is older.
    in_order: int = getattr(cv2, "IMREAD_COLOR_RGB", 0)
    reduced = {
        1: cv2.IMREAD_COLOR,
        2: cv2.IMREAD_REDUCED_COLOR_2,
        4: cv2.IMREAD_REDUCED_COLOR_4,
        8: cv2.IMREAD_REDUCED_COLOR_8,
    }

    def decode(data: bytes, header: Header, reduction: int, rows: int) -> Image:
        mode = reduced[reduction] | cv2.IMREAD_IGNORE_ORIENTATION
        if in_order:
            mode = mode & ~cv2.IMREAD_COLOR | in_order
        image: Image | None = cv2.imdecode(np.frombuffer(data, np.uint8), mode)
        if image is None:
            raise ValueError("OpenCV does not say why")
        return image if in_order else cv2.cvtColor(image, cv2.COLOR_BGR2RGB)

    def resize(image: Image, size: tuple[int, int]) -> Image:
        resized: Image = cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR)
        return resized

    def mirror(image: Image) -> Image:
        mirrored: Image = cv2.flip(image, 1)
        return mirrored

    return Decoder("OpenCV", decode, resize, mirror)


def with_pillow() -> Decoder:
    pillow = pillow_images()

    def decode(data: bytes, header: Header, reduction: int, rows: int) -> Image:
        with pillow.open(io.BytesIO(data), formats=("JPEG",)) as image:
            image.draft("RGB", (header.width // reduction, header.height // reduction))
            return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))

    def resize(image: Image, size: tuple[int, int]) -> Image:
        resized = pillow.fromarray(image).resize(size[::-1], pillow.Resampling.BILINEAR)
        return np.array(resized)

    def mirror(image: Image) -> Image:
        mirrored = np.empty_like(image)
        for colour in range(3):  # seven times as quick as all of them at once
            mirrored[:, :, colour] = image[:, ::-1, colour]
        return mirrored

    return Decoder("Pillow", decode, resize, mirror, lends=True)
