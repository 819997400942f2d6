"""Arrays that keep a much larger one in memory: the crop of a picture, which keeps the picture.

A block of such elements keeps all pictures until it is made a batch, and each one is decoded
into memory that has to be found anew. A copy of the crop lets the next picture have the memory of
the last one, still in the cache. (Decoding and cropping: a third less time on the cores.)
"""

import sys
from typing import Any

import numpy as np

from bushel.tree import leaves_with_paths, map_leaves

# Less than that is no matter.
_LEAST_BYTES = 1 << 16
# References to an array that nobody has but its view: the view's, the variable's, the call's.
_NOBODY_ELSE = 3


def keeps_more(element: Any) -> bool:
    """Tells whether an element keeps more memory than it needs, of which it is the only user.

    >>> keeps_more(np.zeros((500, 500))[:100]), keeps_more(np.zeros((500, 500)))
    (True, False)
    """
    if type(element) is np.ndarray:
        return _keeps_more(element)
    if isinstance(element, (dict, tuple, list)):
        return any(
            type(leaf) is np.ndarray and _keeps_more(leaf) for _, leaf in leaves_with_paths(element)
        )
    return False


def by_itself(element: Any) -> Any:
    """The same element without what it keeps beside itself."""
    if type(element) is np.ndarray:
        return element.copy() if _keeps_more(element) else element
    if isinstance(element, (dict, tuple, list)):
        return map_leaves(by_itself, element)
    return element


def _keeps_more(view: "np.ndarray[Any, Any]") -> bool:
    whole = view.base
    return (
        type(whole) is np.ndarray
        and whole.nbytes >= max(_LEAST_BYTES, 2 * view.nbytes)
        # One that others have, too, stays where it is: a table of which each element is a row.
        and whole.base is None
        and sys.getrefcount(whole) == _NOBODY_ELSE
    )
