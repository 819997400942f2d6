"""Elements that pad a last step (`remainder="pad"`): zeros with the structure of others."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bushel.core.tree import map_leaves


def zeros_like(element: Any) -> Any:
    """An element of the same structure, shapes and types, with zeros.

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
        except Exception:  # The class may require arguments.
            return leaf

    return map_leaves(zero, element)


class Filler:
    """The padding of hosts: zeros, in the form of the first element that there was."""

    def __init__(self, example: Callable[[], Any]) -> None:
        # Makes an element of the job, for a host whose lanes have none.
        self._example = example
        self._element: Any = None
        self.is_known = False

    def learn(self, rows: Sequence[Any]) -> None:
        """Takes note of the form of elements."""
        if rows and not self.is_known:
            self._element, self.is_known = zeros_like(rows[0]), True

    def element(self) -> Any:
        """The padding."""
        if not self.is_known:
            self.learn([self._example()])
        return self._element
