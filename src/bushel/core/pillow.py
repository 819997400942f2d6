"""The one file that imports Pillow."""

from functools import cache
from typing import Any

from bushel.errors import MissingPackageError


@cache
def pillow_images() -> Any:
    """Pillow's module of images."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError("decoding images needs the package pillow", "images") from error
    return Image
