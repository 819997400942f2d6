"""Compresses descriptions of hundreds of lines, as of mixtures of many parts, in states."""

import base64
import json
import zlib
from functools import lru_cache
from typing import Any

# Bytes that no description comes to, and a damaged state may pretend to.
_MOST_BYTES = 1 << 28


# (Saved again and again, a state has the same description each time.)
@lru_cache(maxsize=4)
def packed(lines: tuple[str, ...]) -> str:
    """Packs lines into a text that fits into JSON.

    >>> unpacked(packed(("range(9)", "batch(2)")))
    ['range(9)', 'batch(2)']
    """
    return base64.b64encode(zlib.compress(json.dumps(lines).encode())).decode()


def unpacked(text: str) -> Any:
    """What was packed, or at least some JSON value; None where the text is damaged."""
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        return json.loads(data) if unpacking.eof else None
    except (ValueError, zlib.error, RecursionError):
        return None
