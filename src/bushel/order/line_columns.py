"""The proportions on lines of a `WeightSchedule`, computed when needed, not kept as a table."""

from collections.abc import Iterator, Sequence

import numpy as np

from bushel.core.frozen import plain
from bushel.order.weight_lines import Floats, Proportions

# Numbers that are computed at a time: they stay in the cache of the processor.
AT_ONCE = 1 << 15
# To call numpy for each row pays from this length on: a processor is three times as fast with an
# array and a number as with a table and a column of numbers.
_LONG = 1 << 11


@plain
class LineColumns:
    """The proportions of parts at steps, on lines: a row for each part, a column for each step."""

    # The weights of each part at both ends of its line; 0 where it counts as none.
    low: Floats
    high: Floats
    # How far each step is on the way, and what weights are multiplied by there.
    way: Floats
    scale: Floats

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.low), len(self.way)

    def part(self, start: int, stop: int) -> "LineColumns":
        """The same at some of the steps."""
        return LineColumns(self.low, self.high, self.way[start:stop], self.scale[start:stop])

    def without(self, stays: Sequence[bool]) -> "LineColumns":
        """The same for those parts that stay; the others have none."""
        kept = np.array(stays, dtype=np.float64)
        return LineColumns(self.low * kept, self.high * kept, self.way, self.scale)

    def followed_by(self, more: "LineColumns") -> "LineColumns | None":
        """The same with others after them, if they are on the same lines."""
        if not np.array_equal(self.low, more.low) or not np.array_equal(self.high, more.high):
            return None
        way, scale = np.concatenate([self.way, more.way]), np.concatenate([self.scale, more.scale])
        return LineColumns(self.low, self.high, way, scale)

    def table(self) -> Proportions:
        """All of them."""
        made = np.empty(self.shape, dtype=np.int64)
        for start, rows in self._some_at_a_time():
            made[start : start + len(rows)] = rows
        return made

    def sums(self) -> Floats:
        """The sum of all parts at each step."""
        total = np.zeros(len(self.way))
        for _, rows in self._some_at_a_time():
            for row in rows:
                total += row
        return total

    def _some_at_a_time(self) -> Iterator[tuple[int, Floats]]:
        """The number of a part, and the proportions of it and those after it, up to the next."""
        parts, steps = self.shape
        at_once = max(1, AT_ONCE // max(1, steps))
        room = np.empty((min(at_once, parts), steps))
        for start in range(0, parts, at_once):
            some = slice(start, start + at_once)
            low, high = self.low[some], self.high[some]
            yield start, rows_of(low, high, self.way, self.scale, room[: len(low)])


def rows_of(low: Floats, high: Floats, way: Floats, scale: Floats, rows: Floats) -> Floats:
    """The proportions of some parts, as `Lines` computes them, bit by bit; written to `rows`."""
    if len(way) < _LONG:
        np.multiply.outer(high - low, way, out=rows)
        rows += low[:, None]
        rows *= scale
        return np.trunc(rows, out=rows)
    for start, grows, row in zip(low.tolist(), (high - low).tolist(), rows, strict=True):
        np.multiply(way, grows, out=row)
        row += start
        row *= scale
        np.trunc(row, out=row)
    return rows
