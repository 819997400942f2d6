"""For `profile`: measures what copying large elements costs, and what fresh memory costs."""

from time import perf_counter
from typing import Any

import numpy as np

from bushel.core.landing import LEAST_BYTES
from bushel.core.tree import leaves_with_paths

# The quickest of some rounds counts.
_ROUNDS = 4


def memory_costs(element: Any) -> tuple[float, float]:
    """Seconds to copy the large arrays of an element, and those that new memory takes beside.

    The first is what whoever makes a batch in its place need not do again to send it. The second is
    what those save that use their memory again, as workers do: arrays of more than some ten
    megabytes are in new memory each time otherwise, of which the system has to hand out every page.

    >>> memory_costs({"label": 3, "image": np.zeros(8)})
    (0.0, 0.0)

    An element that contains itself is no tree, and is made in no batch's place.

    >>> endless = []
    >>> endless.append(endless)
    >>> memory_costs(endless)
    (0.0, 0.0)
    """
    copying = fresh = 0.0
    try:
        leaves = [leaf for _, leaf in leaves_with_paths(element)]
    except RecursionError:
        leaves = []
    for leaf in leaves:
        if type(leaf) is not np.ndarray or leaf.nbytes < LEAST_BYTES or leaf.dtype.hasobject:
            continue
        again = np.empty_like(leaf)
        in_place, in_new = [], []
        for _ in range(_ROUNDS):
            began = perf_counter()
            np.copyto(again, leaf)
            in_place.append(perf_counter() - began)
        for _ in range(_ROUNDS):
            began = perf_counter()
            # Given back at once: what the next one gets is what the next batch would.
            leaf.copy()
            in_new.append(perf_counter() - began)
        copying += min(in_place)
        fresh += max(0.0, min(in_new) - min(in_place))
    return copying, fresh
