"""`DecodeAndRandomCrop`: decodes JPEGs no larger and no further than the crop needs.

A JPEG is stored as waves over blocks of 8 × 8 pixels, so a decoder can leave out the shorter ones
and give a half, a quarter or an eighth of the size for a part of the work. And most files are
stored from the top to the bottom, so what is below a crop need not be decoded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bushel.errors import PlanError, RecordError
from bushel.transforms.base import RandomMap
from bushel.transforms.jpeg_decoders import Image, decoder
from bushel.transforms.jpeg_header import Encoded, Header, read_header

# By how much decoders scale down on the way, most first.
_REDUCTIONS = (8, 4, 2)
# How often a crop of the wanted area and shape is looked for, before the largest there is is taken.
_ATTEMPTS = 10


def decode(data: Encoded, min_size: int | tuple[int, int] | None = None) -> Image:
    """Decodes a JPEG to an array of height × width × 3: red, green, blue, 0 to 255.

    Grey is repeated. An orientation that the EXIF data ask for is not applied.

    >>> import cv2, numpy as np
    >>> file = cv2.imencode(".jpg", np.zeros((30, 50, 3), np.uint8))[1].tobytes()
    >>> decode(file).shape
    (30, 50, 3)
    >>> decode(file, min_size=12).shape
    (15, 25, 3)

    Args:
      data: the bytes of the file, or an array of them.
      min_size: a height and a width, or one number for both. The image is decoded at a half, a
        quarter or an eighth of its size where it stays at least this large: what is left to do is
        resizing, of fewer pixels.
    """
    content = _bytes(data)
    header = read_header(content)
    reduction = 1
    if min_size is not None:
        height, width = _pair("decode: `min_size`", min_size)
        reduction = _reduction(header.height / height, header.width / width)
    image = _decoded(content, header, reduction, header.height)
    return image.copy() if decoder().lends else image


@dataclass(frozen=True, slots=True)
class DecodeAndRandomCrop(RandomMap):
    """Decodes a JPEG, and crops it at random to one size.

    The crop is drawn first, from the size in the header; then the file is decoded at the smallest
    of its scales at which the crop is no smaller than `size`, and no further down than the crop;
    then the crop is resized. What comes out is height × width × 3: red, green, blue, 0 to 255. It
    depends on the file, on the generator, and on which of simplejpeg, OpenCV and Pillow are
    installed: the first of them decodes, the first of the other two resizes.

    >>> import cv2, numpy as np
    >>> from bushel import MapDataset
    >>> file = cv2.imencode(".jpg", np.zeros((300, 400, 3), np.uint8))[1].tobytes()
    >>> files = MapDataset.source([file] * 8).seed(0)
    >>> files.random_map(DecodeAndRandomCrop(224)).batch(8)[0].shape
    (8, 224, 224, 3)
    >>> records = files.map(lambda file: {"image": file, "label": 1})
    >>> records.random_map(DecodeAndRandomCrop((32, 64), field="image"))[0]["image"].shape
    (32, 64, 3)

    Args:
      size: the height and the width of what comes out, or one number for both.
      scale: the least and the greatest share of the image's area that a crop has. None for crops
        of `size` pixels of the image as it is, without resizing; from an image that is smaller
        than that, the largest crop of the shape is enlarged.
      ratio: the least and the greatest width of a crop over its height. Where no such crop is
        found, the largest in the middle of the image is taken.
      flip: whether half of the crops are mirrored, left to right.
      field: the entry of a dict that holds the file; the other entries stay. None where elements
        are the files themselves.
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] | None = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True
    field: str | None = None

    def __post_init__(self) -> None:
        _pair("DecodeAndRandomCrop: `size`", self.size)
        if self.scale is not None and not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise PlanError(
                "DecodeAndRandomCrop: `scale` is the least and the greatest share of an image, "
                f"above 0 and up to 1, and got {self.scale!r}."
            )
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise PlanError(
                "DecodeAndRandomCrop: `ratio` is the least and the greatest width of a crop over "
                f"its height, and got {self.ratio!r}."
            )
        decoder()  # a missing package is noticed here, and not at the first record

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        """Returns the crop; with `field`, the dict with the crop in place of the file."""
        if self.field is None:
            return self._crop(element, rng)
        if not isinstance(element, dict):
            raise PlanError(
                f"DecodeAndRandomCrop: `field={self.field!r}` is an entry of elements that are "
                f"dicts, and this one is of type {type(element).__name__}. Leave `field` out where "
                "elements are the files themselves."
            )
        return {**element, self.field: self._crop(element[self.field], rng)}

    def _crop(self, data: Encoded, rng: np.random.Generator) -> Image:
        content = _bytes(data)
        header = read_header(content)
        whole = header.height, header.width
        size = _pair("size", self.size)
        if self.scale is None:
            crop = _place(whole, _within(whole, size), rng)
        else:
            crop = _draw(whole, self.scale, self.ratio, rng)
        flip = self.flip and rng.random() < 0.5
        reduction = _reduction(crop.height / size[0], crop.width / size[1])
        image = crop.of(_decoded(content, header, reduction, crop.top + crop.height), reduction)
        if image.shape[:2] != size:
            image = decoder().resize(image, size)
            if not flip:
                return image
        # A copy, since a view would keep the whole picture alive until its batch is complete,
        # and the next would be decoded into memory that is not in any cache.
        return decoder().mirror(image) if flip else np.array(image, order="C")


class _Crop(NamedTuple):
    """A part of an image, in pixels of the image as it is stored."""

    top: int
    left: int
    height: int
    width: int

    def of(self, image: Image, reduction: int) -> Image:
        """Cuts it out of the image, which has been scaled down while it was decoded."""
        bottom, right = self.top + self.height, self.left + self.width
        return image[
            self.top // reduction : -(-bottom // reduction),
            self.left // reduction : -(-right // reduction),
        ]


def _draw(
    whole: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
) -> _Crop:
    """Draws area and shape until the crop fits; a shape and its inverse are as likely."""
    height, width = whole
    for _ in range(_ATTEMPTS):
        area = height * width * rng.uniform(*scale)
        shape = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        crop = round(math.sqrt(area / shape)), round(math.sqrt(area * shape))
        if 0 < crop[0] <= height and 0 < crop[1] <= width:
            return _place(whole, crop, rng)
    if width < ratio[0] * height:
        crop = max(1, round(width / ratio[0])), width
    elif width > ratio[1] * height:
        crop = height, max(1, round(height * ratio[1]))
    else:
        crop = whole
    return _Crop((height - crop[0]) // 2, (width - crop[1]) // 2, *crop)


def _place(whole: tuple[int, int], crop: tuple[int, int], rng: np.random.Generator) -> _Crop:
    """Puts a crop anywhere in the image."""
    top = int(rng.integers(whole[0] - crop[0] + 1))
    left = int(rng.integers(whole[1] - crop[1] + 1))
    return _Crop(top, left, *crop)


def _within(whole: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """The size itself, or the largest of its shape that the image has."""
    factor = min(whole[0] / size[0], whole[1] / size[1])
    if factor >= 1:
        return size
    return max(1, int(size[0] * factor)), max(1, int(size[1] * factor))


def _reduction(*factors: float) -> int:
    """By how much to scale down an image, given how many times too large it is each way."""
    return next((by for by in _REDUCTIONS if by <= min(factors)), 1)


def _pair(what: str, size: int | tuple[int, int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise PlanError(
            f"{what} is a height and a width in pixels, or one number for both, and got {size!r}."
        )
    return height, width


def _bytes(data: Encoded) -> bytes:
    """Gives the bytes of a file, as records hold them in one type or another."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, np.ndarray) and (data.dtype != np.uint8 or data.ndim != 1):
        raise RecordError(
            "a JPEG file is bytes, or an array of one axis of uint8, and this is an array of "
            f"{data.dtype} {data.shape}. Is it decoded already?"
        )
    if not isinstance(data, (bytearray, memoryview, np.ndarray)):
        raise RecordError(
            f"a JPEG file is bytes, or an array of uint8, and this is of type "
            f"{type(data).__name__}. Name the entry of a dict that holds it with `field`."
        )
    return bytes(data)


def _decoded(data: bytes, header: Header, reduction: int, rows: int) -> Image:
    try:
        return decoder().decode(data, header, reduction, rows)
    except MemoryError:
        raise
    except Exception as error:
        # Decoders have errors of their own, and Pillow's are of many kinds.
        raise RecordError(
            f"this JPEG file of {header.width} × {header.height} pixels and {len(data):,} bytes "
            f"cannot be decoded: {error}."
        ) from error
