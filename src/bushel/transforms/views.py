"""Arrays that keep a much larger one in memory: the crop of a picture, which keeps the picture.

A block of such elements keeps all pictures until it is made a batch, and each one is decoded
into memory that has to be found anew. A copy of the crop lets the next picture have the memory of
the last one, still in the cache. (Decoding and cropping: a third less time on the cores.)
"""

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from bushel.tree import map_leaves, open_node

# Less than that is no matter.
_LEAST_BYTES = 1 << 16
# Of a long list, so many at most are looked at: it may be a document, token by token.
_LOOKED_AT = 16
_NEVER = frozenset({int, float, bool, str, bytes, type(None)})
# References to an array that nobody has but its view: the view's, the variable's, the call's.
_NOBODY_ELSE = 3


def keeps_more(element: Any) -> bool:
    """Tells whether an element keeps more memory than it needs, of which it is the only user.

    >>> keeps_more(np.zeros((500, 500))[:100]), keeps_more(np.zeros((500, 500)))
    (True, False)
    """
    if type(element) is np.ndarray:
        return _keeps_more(element)
    # For each element where they come one by one: so nothing is opened that need not be.
    within: Iterable[Any]
    if type(element) is dict:
        within = element.values()
    elif type(element) in (tuple, list):
        within = element if len(element) <= _LOOKED_AT else islice(element, _LOOKED_AT)
    elif isinstance(element, (dict, tuple)):
        opened = open_node(element)
        within = () if opened is None else opened[1]
    else:
        return False
    for child in within:
        if type(child) is np.ndarray:
            if _keeps_more(child):
                return True
        elif type(child) not in _NEVER and keeps_more(child):
            return True
    return False


def by_itself(element: Any) -> Any:
    """The same element without what it keeps beside itself."""
    if isinstance(element, (dict, tuple, list)):
        return map_leaves(_leaf_by_itself, element)
    return _leaf_by_itself(element)


def _leaf_by_itself(leaf: Any) -> Any:
    # Also a list of the user's own kind, which is no list to look into.
    return leaf.copy() if type(leaf) is np.ndarray and _keeps_more(leaf) else leaf


def _keeps_more(view: "np.ndarray[Any, Any]") -> bool:
    whole = view.base
    return (
        type(whole) is np.ndarray
        and whole.nbytes >= max(_LEAST_BYTES, 2 * view.nbytes)
        # One that others have, too, stays where it is: a table of which each element is a row.
        and whole.base is None
        and sys.getrefcount(whole) == _NOBODY_ELSE
    )
