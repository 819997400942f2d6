"""The number of bytes of an element."""

import sys
from collections.abc import Sequence
from typing import Any

from bushel.core.tree import open_node

# The number of items of a long list that are measured: measuring every token of a batch may take
# longer than making it.
_LOOKED_AT = 16
# Bytes that a list needs for each item, besides the item.
_PLACE_BYTES = 8
# Bytes that numpy needs for an array, besides its numbers.
_ARRAY_BYTES = 112
# What an object is taken for that does not tell its size.
_UNKNOWN_BYTES = 32


def bytes_of(element: Any, objects: bool = False) -> int:
    """The bytes of an element's leaves, roughly; with `objects` also what Python adds to them.

    >>> import numpy as np
    >>> element = {"image": np.zeros((2, 3), np.float32), "mask": np.zeros(6, bool), "none": None}
    >>> bytes_of(element), bytes_of(element, objects=True) > 30 + 2 * 112
    (30, True)

    Of a long list a few items are measured, and the list's own bytes for each item are counted.

    >>> bytes_of([np.zeros(100, np.int8)] * 1000)
    108000
    """
    kind = type(element)
    if (kind is list or kind is tuple) and len(element) > _LOOKED_AT:
        return _bytes_of_many(element, objects)
    opened = open_node(element)
    if opened is None:
        try:
            size = getattr(element, "nbytes", None)
            if type(size) is int:  # Elements may be anything, and some have a method of this name.
                return size + _ARRAY_BYTES if objects else size
            return sys.getsizeof(element, _UNKNOWN_BYTES)
        except Exception:  # Or have a property that raises, as sparse tensors do.
            return _UNKNOWN_BYTES
    total = sum(bytes_of(child, objects) for child in opened[1])
    return total + sys.getsizeof(element, 64) if objects else total


def _bytes_of_many(element: Sequence[Any], objects: bool) -> int:
    """The same of a long list, by some of its items: it is not even copied."""
    count = len(element)
    some = element[:: -(-count // _LOOKED_AT)]
    total = sum(bytes_of(child, objects) for child in some) * count // len(some)
    # Of a million numbers of Python's, the places in the list are a fifth of the memory.
    return total + (sys.getsizeof(element) if objects else _PLACE_BYTES * count)
