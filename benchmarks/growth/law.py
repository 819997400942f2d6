"""What must hold: cost grows at most tenfold over an axis, and is never above Grain's."""

from dataclasses import dataclass

from benchmarks.growth.run import Line

MOST_GROWTH = 10.0
# What two runs of the same thing differ by on a machine that others use.
NOISE = 1.1
# What happens once may take so much longer: nobody notices.
ONCE_SECONDS = 0.003
# What is compared with Grain: cost, first elements, restoring.
COMPARED = ("cost", "early", "restore")


@dataclass(frozen=True, slots=True)
class Growth:
    """How often as much the largest size costs as the smallest.

    Where the work itself grows with the size, it is how often as much a unit of it costs at the
    largest size as at the best one.
    """

    factor: float | None

    @property
    def holds(self) -> bool:
        return self.factor is None or self.factor <= MOST_GROWTH


def growth(line: Line, what: str = "cost") -> Growth:
    values = line.values(what)
    if len(values) < 2 or not values[0][1]:
        return Growth(None)
    if line.per_size:
        each = [value / size for size, value in values]
        return Growth(each[-1] / min(each) if min(each) else None)
    return Growth(values[-1][1] / values[0][1])


def against(line: Line, other: Line, what: str = "cost") -> list[tuple[int, float]]:
    """How often as much bushel takes as Grain, at each size that both have."""
    theirs = dict(other.values(what))
    return [
        (size, value / theirs[size])
        for size, value in line.values(what)
        if size in theirs and theirs[size] > 0
    ]


def above(line: Line, other: Line, what: str) -> list[tuple[int, float]]:
    """The sizes at which bushel takes more than Grain, and how often as much."""
    ours, theirs = dict(line.values(what)), dict(other.values(what))
    slack = 0.0 if what == "cost" else ONCE_SECONDS
    return [
        (size, ratio)
        for size, ratio in against(line, other, what)
        if ours[size] > NOISE * theirs[size] + slack
    ]


def breaches(lines: list[Line]) -> list[str]:
    """Says in words which law is broken where."""
    found = []
    grain = {(line.axis, line.variant): line for line in lines if line.system == "grain"}
    for line in lines:
        if line.system != "bushel":
            continue
        name = f"{line.axis}, {line.title}"
        found += [f"{name}: at {p.size:,} {p.cut}" for p in line.points if p.cut]
        grown = growth(line)
        if not grown.holds:
            found.append(f"{name}: cost grows {grown.factor:,.1f} times, at most {MOST_GROWTH:g}")
        other = grain.get((line.axis, line.variant))
        for what in COMPARED:
            higher = above(line, other, what) if other is not None else []
            if higher:
                size, ratio = max(higher, key=lambda pair: pair[1])
                found.append(f"{name}: {what} is {ratio:.2g} times Grain's at {size:,}")
    return found
