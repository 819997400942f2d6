"""Proof of the work: what was delivered, so that contenders can be held against each other.

`outline` is how many records of what shape; `total` adds their sum but ignores their order, and so
is the same for every system; `order` is a hash of the elements as they came, and so is the same for
bushel and Grain, whose orders are identical.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Proof:
    total: str
    order: str
    outline: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def of(elements: list[Any]) -> Proof:
    """Says all there is to say of a small epoch."""
    return Proof(total=total(elements), order=order(elements), outline=outline(elements))


def columns(element: Any) -> dict[str, NDArray[Any]]:
    """Gives the arrays of a batch by name, whatever kind of array the system delivers."""
    if isinstance(element, Mapping):
        return {str(name): np.asarray(element[name]) for name in sorted(element)}
    return {"": np.asarray(element)}


def order(elements: Iterable[Any]) -> str:
    """Hashes names, dtypes, shapes and bytes of the elements in their order."""
    digest = hashlib.sha256()
    for element in elements:
        for name, array in columns(element).items():
            digest.update(f"{name} {array.dtype} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def total(elements: Iterable[Any]) -> str:
    """Adds up the elements, exactly, so that their order does not show.

    >>> total([np.array([1, 2]), np.array([3])])
    '3 records: int64 () sum 6.0'
    """
    return describe(elements, lambda column: f" sum {exact_sum(column)}")


def outline(elements: Iterable[Any]) -> str:
    """Counts the elements and names their dtypes and shapes.

    >>> outline([np.array([1, 2]), np.array([3])])
    '3 records: int64 ()'
    """
    return describe(elements, lambda column: "")


def describe(elements: Iterable[Any], more: Callable[[NDArray[Any]], str]) -> str:
    """Joins the elements and says what each column is, with something more about it."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for element in elements:
        for name, array in columns(element).items():
            parts.setdefault(name, []).append(np.atleast_1d(array))
    described = []
    count = 0
    for name, arrays in parts.items():
        joined = np.concatenate(arrays)
        count = len(joined)
        described.append(f"{name} {joined.dtype} {joined.shape[1:]}{more(joined)}".strip())
    return f"{count} records: {', '.join(described)}"


def exact_sum(column: NDArray[Any]) -> float:
    """Adds up integers as such, and anything else without rounding on the way."""
    if column.dtype.kind in "biu":
        return float(column.sum())
    return math.fsum(column.ravel().tolist())


def first(iterable: Iterable[Any], count: int) -> list[Any]:
    """Takes the first elements and closes the iterator, so that no thread of it goes on."""
    iterator = iter(iterable)
    try:
        return list(islice(iterator, count))
    finally:
        close(iterator)


def close(iterator: Iterator[Any]) -> None:
    if hasattr(iterator, "close"):
        iterator.close()
