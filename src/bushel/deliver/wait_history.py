"""The history of a loop's waits over a run, in a bounded number of columns, for the report."""

from typing import NamedTuple

# A picture has as many columns of pixels.
MOST_COLUMNS = 800


class WaitColumn(NamedTuple):
    """Consecutive waits: their number, and the least, the sum and the longest in seconds."""

    waits: int
    least: float
    total: float
    longest: float
    # The element of the last wait, as the number of elements delivered before.
    elements: int

    @property
    def mean(self) -> float:
        """The mean wait in seconds."""
        return self.total / self.waits

    def with_next(self, other: "WaitColumn") -> "WaitColumn":
        """These waits and the following ones."""
        return WaitColumn(
            self.waits + other.waits,
            min(self.least, other.least),
            self.total + other.total,
            max(self.longest, other.longest),
            other.elements,
        )


class WaitHistory:
    """Keeps columns with an equal number of waits each; two become one when there are too many.

    >>> history = WaitHistory()
    >>> for number in range(MOST_COLUMNS):
    ...     each = history.add(WaitColumn(1, number, number, number, number))
    >>> each, len(history.columns), history.columns[1]
    (2, 400, WaitColumn(waits=2, least=2, total=5, longest=3, elements=3))
    """

    __slots__ = ("columns", "waits_each")

    def __init__(self) -> None:
        self.columns: list[WaitColumn] = []
        self.waits_each = 1

    def add(self, column: WaitColumn) -> int:
        """Adds a column of `waits_each` waits; returns the number of waits for the next one."""
        columns = self.columns
        columns.append(column)
        if len(columns) >= MOST_COLUMNS:
            pairs = zip(columns[::2], columns[1::2], strict=False)
            # After an interrupt there may be one more.
            odd = columns[len(columns) // 2 * 2 :]
            self.columns = [*(first.with_next(second) for first, second in pairs), *odd]
            self.waits_each *= 2
        return self.waits_each
