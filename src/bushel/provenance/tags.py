"""Tags of traced elements: the records that each was made from."""

from collections.abc import Iterable
from typing import Any

from bushel.core.block import Failure
from bushel.core.frozen import plain


@plain
class TagsOfRows:
    """The origin of a batch: the tags of its rows."""

    rows: list[Any]


@plain
class TagsOfParts:
    """The origin of an element made of several, which are not its rows."""

    parts: list[Any]


@plain
class TagOfOneRow:
    """The origin of one row of an element that had `rows` rows, and was cut or taken apart."""

    whole: tuple[int, Any]
    row: int
    rows: int


class Tagged:
    """An element, or None in its place if its value is not needed, and its origin.

    The tag is a pair of an origin's number and a position there, `TagsOfRows`, `TagsOfParts`, or
    `TagOfOneRow`.
    """

    __slots__ = ("tag", "value")

    def __init__(self, value: Any = None, tag: Any = None) -> None:
        # (Padding of lanes has no tag.)
        self.value, self.tag = value, tag


class FailedElements:
    """The tags of failed elements, until these are replaced."""

    def __init__(self) -> None:
        self._tags: dict[int, tuple[Exception, Any]] = {}

    def note(self, failure: Failure | None, tag: Any) -> None:
        """Takes note of an element for which a function failed."""
        if failure is not None and failure.error is not None:
            self._tags[id(failure.error)] = failure.error, tag

    def tag_of(self, error: Exception) -> Any:
        """The tag of the failed element, if known."""
        return self._tags.pop(id(error), (None, None))[1]


def tags_of_rows(tag: Any, rows: int) -> list[Any]:
    """The tags of the rows of an element that is cut or taken apart."""
    if isinstance(tag, TagsOfRows) and len(tag.rows) == rows:
        return tag.rows
    if isinstance(tag, tuple):
        return [TagOfOneRow(tag, row, rows) for row in range(rows)]
    # A function made other rows of it: each may be of any of its records.
    return [TagsOfParts(tag.rows) if isinstance(tag, TagsOfRows) else tag] * rows


def records_in(tag: Any, row: int = 0) -> Iterable[tuple[int, Any]]:
    """For each record of an element, its row and its origin."""
    if tag is None:
        return
    if isinstance(tag, (tuple, TagOfOneRow)):
        yield row, tag
        return
    parts = tag.rows if isinstance(tag, TagsOfRows) else tag.parts
    width = 0
    if isinstance(tag, TagsOfRows):
        first = parts[0] if parts else None
        width = len(first.rows) if isinstance(first, TagsOfRows) else 1
    for number, part in enumerate(parts):
        yield from records_in(part, row + number * width)
