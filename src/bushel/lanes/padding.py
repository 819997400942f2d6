"""Elements to pad with."""

from typing import Any

import numpy as np

from bushel.core.tree import map_leaves


def zeros_like(element: Any) -> Any:
    """An element of the same structure, shapes and types, of which nothing is to be learnt.

    >>> zeros_like({"x": np.array([1.5, 2.5]), "y": 7, "name": "n", "flag": True})
    {'x': array([0., 0.]), 'y': 0, 'name': '', 'flag': False}
    """

    def zero(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return np.zeros_like(leaf)
        if isinstance(leaf, np.generic):
            return np.zeros((), leaf.dtype)[()]  # A date keeps its unit.
        try:
            return type(leaf)()
        except Exception:  # Whatever its class may want.
            return leaf

    return map_leaves(zero, element)
