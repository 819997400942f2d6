"""Where a source stores a record (file, offset), for errors, reports and provenance."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class StoredAt(NamedTuple):
    """Where a record is stored, as far as its source tells."""

    file: str | None = None
    # Its number in the file, its first byte, and the byte after its last.
    record: int | None = None
    start: int | None = None
    stop: int | None = None


def stored_at(source: Any, keys: "Sequence[Any] | np.ndarray[Any, Any]") -> list[StoredAt] | None:
    """Asks a source for the places of records; None where it does not tell.

    A source tells by `place_of(key)`, which returns the file, the number of the record there and
    its first byte; and, if it knows a quicker way for many, by `places_of(keys)` as well.

    >>> class Pages:
    ...     def place_of(self, key):
    ...         return "book.txt", key, 80 * key
    >>> stored_at(Pages(), [2])
    [StoredAt(file='book.txt', record=2, start=160, stop=None)]
    >>> stored_at(range(3), [2])
    """
    many = getattr(source, "places_of", None)
    if callable(many):
        return [StoredAt(*place) for place in many(np.asarray(keys))]
    one = getattr(source, "place_of", None)
    if not callable(one):
        return None
    keys = keys.tolist() if isinstance(keys, np.ndarray) else keys
    return [StoredAt(*one(key)) for key in keys]


def known_place(source: Any, key: Any) -> tuple[str, int, int | None] | None:
    """The file, the number and the first byte of one record, for an error about it.

    None if unknown, also if the source fails: the file may be gone by now.
    """
    try:
        found = stored_at(source, [key])
    except Exception:
        return None
    if not found or found[0].file is None or found[0].record is None:
        return None
    return str(found[0].file), found[0].record, found[0].start
