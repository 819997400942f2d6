"""Decodes images with Pillow, as arrays of height × width × 3."""

import io

import numpy as np
import numpy.typing as npt

from bushel.core.pillow import pillow_images
from bushel.errors import RecordError


def decode_image(data: bytes, where: str) -> npt.NDArray[np.uint8]:
    """Decodes an image to an array of height × width × 3: red, green, blue, 0 to 255.

    Grey is repeated, palettes are resolved, and transparency is dropped. Of several pictures, the
    first is taken. The orientation in EXIF data is not applied.

    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 2), (255, 0, 9)).save(file, "PNG")
    >>> image = decode_image(file.getvalue(), "'red.png'")
    >>> image.shape, image[0, 0].tolist()
    ((2, 4, 3), [255, 0, 9])
    """
    pillow = pillow_images()
    try:
        with pillow.open(io.BytesIO(data)) as image:
            if image.mode in ("I", "F"):
                raise ValueError(
                    f"its values are of mode {image.mode!r}, and not from 0 to 255; read the bytes "
                    "with decode=False, and decode them in a `map`"
                )
            if image.mode.startswith("I;16"):
                # Pillow would clip values above 255.
                grey = (np.asarray(image) >> 8).astype(np.uint8)
                return np.repeat(grey[:, :, None], 3, axis=2)
            return np.array(image.convert("RGB"))
    except MemoryError:
        raise
    except Exception as error:
        # Pillow has decoders for a dozen formats, each with errors of its own.
        raise RecordError(f"the image {where} cannot be decoded: {error}.") from error


def decode_image_of_record(data: bytes) -> npt.NDArray[np.uint8]:
    """The same for a record whose place its source knows."""
    return decode_image(data, "of the record")
