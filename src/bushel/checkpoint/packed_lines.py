"""Compresses descriptions of hundreds of lines, as of mixtures of many parts, in states."""

import base64
import json
import zlib
from functools import lru_cache
from typing import Any

# More bytes than any description has; a damaged state may claim more.
_MOST_BYTES = 1 << 28


# (A stream's state is saved again and again, with the same description each time.)
@lru_cache(maxsize=4)
def packed(lines: tuple[str, ...]) -> str:
    """Packs lines into a text that fits into JSON.

    >>> unpacked(packed(("range(9)", "batch(2)")))
    ['range(9)', 'batch(2)']
    """
    return base64.b64encode(zlib.compress(json.dumps(lines).encode())).decode()


def unpacked(text: str) -> Any:
    """The packed lines, or some other JSON value; None if the text is damaged."""
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        return json.loads(data) if unpacking.eof else None
    except (ValueError, zlib.error, RecursionError):
        return None
