"""Arguments that methods of both kinds of datasets check alike."""

import operator
import sys
from typing import Any

from bushel.errors import PlanError


def check_count(count: Any, operation: str) -> int:
    """Returns a number of elements that an operation was given."""
    whole: int = operator.index(count)
    if whole < 0:
        raise PlanError(f"`{operation}` takes a number of elements, and got {whole}.")
    return whole


def check_window(size: Any, stride: Any) -> tuple[int, int]:
    """Returns the size and the stride of windows."""
    size, stride = operator.index(size), operator.index(stride)
    if not 0 < size <= sys.maxsize or not 0 < stride <= sys.maxsize:
        raise PlanError(
            f"`windows`: size and stride must be positive, and are {size} and {stride}. (No "
            f"dataset has more than {sys.maxsize} elements.)"
        )
    return size, stride
