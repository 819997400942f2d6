"""The number of bytes of an element."""

import sys
from typing import Any

from bushel.core.tree import open_node

# Items of a long list that are looked at: to look at every token of a batch may take longer than
# to make it.
_LOOKED_AT = 16
# What numpy needs for an array beside its numbers.
_ARRAY_BYTES = 112
# What an object is taken for that does not tell its size.
_UNKNOWN_BYTES = 32


def bytes_of(element: Any, objects: bool = False) -> int:
    """The bytes of an element's leaves, roughly; with `objects` also what Python adds to them.

    >>> import numpy as np
    >>> element = {"image": np.zeros((2, 3), np.float32), "mask": np.zeros(6, bool), "none": None}
    >>> bytes_of(element), bytes_of(element, objects=True) > 30 + 2 * 112
    (30, True)
    """
    opened = open_node(element)
    if opened is None:
        try:
            size = getattr(element, "nbytes", None)
            if type(size) is int:  # Elements may be anything, and some call a method so.
                return size + _ARRAY_BYTES if objects else size
            return sys.getsizeof(element, _UNKNOWN_BYTES)
        except Exception:  # Or have a property that raises, as sparse tensors do.
            return _UNKNOWN_BYTES
    within = opened[1]
    count = len(within)
    if count > _LOOKED_AT and isinstance(element, (list, tuple)):
        within = within[:: -(-count // _LOOKED_AT)]
    total = sum(bytes_of(child, objects) for child in within) * count // max(1, len(within))
    return total + sys.getsizeof(element, 64) if objects else total
