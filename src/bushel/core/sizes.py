"""The number of bytes of an element."""

import sys
from typing import Any

from bushel.core.tree import open_node

# The number of items of a long list that are measured: measuring every token of a batch may take
# longer than making it.
_LOOKED_AT = 16
# Bytes that a list needs for each item, besides the item.
_PLACE_BYTES = 8
# Bytes that numpy needs for an array, besides its numbers.
_ARRAY_BYTES = 112
# The assumed size of an object that does not tell its size.
_UNKNOWN_BYTES = 32
# Most leaves that are no arrays: asking for their size takes less than calling a function.
_PLAIN = frozenset({int, float, bool, str, bytes})
# Levels of nesting that are looked at: far fewer than calls may be nested.
_MOST_LEVELS = 100


def bytes_of(element: Any, objects: bool = False) -> int:
    """The bytes of an element's leaves, roughly; with `objects` also what Python adds to them.

    >>> import numpy as np
    >>> element = {"image": np.zeros((2, 3), np.float32), "mask": np.zeros(6, bool), "none": None}
    >>> bytes_of(element), bytes_of(element, objects=True) > 30 + 2 * 112
    (30, True)

    Of a long list a few items are measured, and the list's own bytes for each item are counted.

    >>> bytes_of([np.zeros(100, np.int8)] * 1000)
    108000

    A dict or list that is in an element several times needs its memory once; and an element may
    contain itself.

    >>> endless = [bytes(100)]
    >>> endless += [endless, endless]
    >>> bytes_of(endless) < 300
    True
    """
    return _bytes_of(element, objects, {}, 0)


def _bytes_of(element: Any, objects: bool, seen: dict[int, Any], level: int) -> int:
    """The same for a part of an element, at this level of nesting.

    `seen` has the dicts and lists that were measured already, by their `id`: were each measured
    again wherever it is found, then an element whose parts name each other, such as the nodes of a
    graph, would take for ever. It keeps them, so that no other gets the same `id`.
    """
    kind = type(element)
    is_long = (kind is list or kind is tuple) and len(element) > _LOOKED_AT
    opened = None if is_long else open_node(element)
    if not is_long and opened is None:
        try:
            size = getattr(element, "nbytes", None)
            if type(size) is int:  # Elements may be anything, and some have a method of this name.
                return size + _ARRAY_BYTES if objects else size
            return sys.getsizeof(element, _UNKNOWN_BYTES)
        except Exception:  # Or a property that raises, as sparse tensors do.
            return _UNKNOWN_BYTES
    if id(element) in seen:
        return 0
    seen[id(element)] = element
    if level == _MOST_LEVELS:
        return _UNKNOWN_BYTES
    own = sys.getsizeof(element, 64) if objects else 0
    count = len(element) if is_long else 0
    # (Not even a long list is copied.)
    children = opened[1] if opened is not None else element[:: -(-count // _LOOKED_AT)]
    total = 0
    for child in children:
        if type(child) in _PLAIN:
            total += sys.getsizeof(child)
        else:
            total += _bytes_of(child, objects, seen, level + 1)
    if not is_long:
        return own + total
    # For a million Python numbers, the slots of the list are a fifth of the memory.
    return total * count // len(children) + (own or _PLACE_BYTES * count)
