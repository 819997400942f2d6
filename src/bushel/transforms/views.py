"""Copies arrays that would keep a much larger array in memory, such as crops of images.

A block of such elements keeps all pictures until it is made a batch, and each one is decoded
into memory that has to be found anew. A copy of the crop lets the next picture have the memory of
the last one, still in the cache. (Decoding and cropping: a third less time on the cores.)

Nothing but the memory may tell the difference: what is in an element twice stays one, and what
is no such array stays the very object that it is. And it must cost next to nothing to see that
there is none: an element may be a list of thousands of numbers.
"""

import sys
from itertools import islice
from typing import Any

import numpy as np

# Less than that is no matter.
_LEAST_BYTES = 1 << 16
# References to an array that nobody has but its view: the view's, the variable's, the call's.
_NOBODY_ELSE = 3
# And to a view that only one dict, list or tuple has: that one's, and the call's.
_ONLY_HERE = 2
# How many entries of a dict, list or tuple are looked at, and how deep they may lie.
_MOST_ENTRIES = 16
_DEEPEST = 3


def keeps_more(element: Any) -> bool:
    """Tells whether an element keeps more memory than it needs, of which it is the only user.

    >>> keeps_more(np.zeros((500, 500))[:100]), keeps_more(np.zeros((500, 500)))
    (True, False)
    """
    if type(element) is np.ndarray:
        return _keeps_more(element)
    return _keeps_more_within(element, 0)


def by_itself(element: Any) -> Any:
    """The same element without what it keeps beside itself."""
    if type(element) is np.ndarray:
        return _copied(element) if _keeps_more(element) else element
    return _alone_within(element, 0)


def _keeps_more_within(element: Any, depth: int) -> bool:
    return any(
        _is_to_copy(element, name)
        if type(element[name]) is np.ndarray
        else _keeps_more_within(element[name], depth + 1)
        for name in _names(element, depth)
    )


def _alone_within(element: Any, depth: int) -> Any:
    changed: dict[Any, Any] = {}
    for name in _names(element, depth):
        if type(element[name]) is not np.ndarray:
            inner = _alone_within(element[name], depth + 1)
            if inner is not element[name]:
                changed[name] = inner
        elif _is_to_copy(element, name):
            changed[name] = _copied(element[name])
    if not changed:
        return element
    if type(element) is dict:
        return {**element, **changed}
    entries = list(element)
    for name, entry in changed.items():
        entries[name] = entry
    return type(element)(entries)


def _names(element: Any, depth: int) -> Any:
    """The first names or numbers of what is in an element; none where it is none of several."""
    kind = type(element)
    if depth >= _DEEPEST or (kind is not dict and kind is not list and kind is not tuple):
        return ()
    return (
        islice(element, _MOST_ENTRIES) if kind is dict else range(min(len(element), _MOST_ENTRIES))
    )


def _is_to_copy(container: Any, name: Any) -> bool:
    # (One that is in several elements, or twice in one, is not copied for each of them.)
    return sys.getrefcount(container[name]) == _ONLY_HERE and _keeps_more(container[name])


def _keeps_more(view: "np.ndarray[Any, Any]") -> bool:
    whole = view.base
    return (
        type(whole) is np.ndarray
        and whole.nbytes >= max(_LEAST_BYTES, 2 * view.nbytes)
        # One that others have, too, stays where it is: a table of which each element is a row.
        and whole.base is None
        and sys.getrefcount(whole) == _NOBODY_ELSE
    )


def _copied(view: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    copied = view.copy(order="K")
    copied.flags.writeable = view.flags.writeable
    return copied
