"""What the cells say: medians with their spread, and whether the laws hold."""

from dataclasses import dataclass, field
from math import sqrt
from statistics import median, stdev
from typing import NamedTuple

from benchmarks.busy.jobs import JOBS, WAYS

# No job uses more than this many times the CPU that it uses inline,
MOST_CPU = 1.15
# nor is it slower by more than this than the better of inline and threads.
MOST_TIME = 1.10
# Threads pay where they are faster by this on a quiet machine. Where they do not, they may still
# come sooner beside others, because the system gives more turns to two threads than to one: that
# is taken from the others, hangs on how it deals out the cores, and is not asked for.
PAYS = 1.1

Reading = dict[str, float]
Key = tuple[str, int, str]  # job, load, way
# What a way is compared with.
BASES = {"default": "inline", "workers": "workers0"}


class Figure(NamedTuple):
    """A ratio: the median of the rounds, and how far off it may be."""

    name: str
    value: float
    tolerance: float
    limit: float

    @property
    def verdict(self) -> str:
        if self.value <= self.limit:
            return "holds"
        return "open" if self.value - self.tolerance <= self.limit else "BROKEN"

    def __str__(self) -> str:
        return f"{self.value:.2f} ±{self.tolerance:.2f} {self.verdict}"


@dataclass(slots=True)
class Readings:
    """All readings, by job, number of busy processes and way."""

    cells: dict[Key, list[Reading]] = field(default_factory=dict)

    def add(self, key: Key, reading: Reading) -> None:
        self.cells.setdefault(key, []).append(reading)

    def typical(self, key: Key, what: str) -> float | None:
        readings = self.cells.get(key)
        return median(reading[what] for reading in readings) if readings else None

    def pays(self, job: str) -> bool:
        """Whether threads pay on a quiet machine; they do if nobody has looked."""
        alone = self.typical((job, 0, "inline"), "wall")
        together = self.typical((job, 0, "threads"), "wall")
        return alone is None or together is None or alone > PAYS * together

    def ratios(self, job: str, load: int, way: str, bases: list[str], what: str) -> list[float]:
        """One for each round, against the better of `bases`: all were measured side by side."""
        rows = [self.cells.get((job, load, name), []) for name in (way, *bases)]
        rounds = zip(*(row for row in rows if row), strict=False)
        found = []
        for own, *others in rounds if rows[0] else ():
            best = min((other[what] for other in others), default=0.0)
            if best > 0.0:
                found.append(own[what] / best)
        return found


def figures(readings: Readings, job: str, load: int) -> list[Figure]:
    """What the laws are about, as far as it was measured."""
    found = []
    for way, base in BASES.items():
        threads = ["threads"] if way == "default" and readings.pays(job) else []
        for what, limit, bases in (
            ("cpu", MOST_CPU, [base]),
            ("wall", MOST_TIME, [base, *threads]),
        ):
            ratios = readings.ratios(job, load, way, bases, what)
            if ratios:
                # Of a median: a quarter more than of a mean. Of a single round nothing is known.
                unsure = 1.25 * stdev(ratios) / sqrt(len(ratios)) if len(ratios) > 1 else 0.1
                name = f"{way} {'cpu' if what == 'cpu' else 'time'}"
                found.append(Figure(name, median(ratios), unsure, limit))
    return found


def microseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e6:.3g}"


def row(readings: Readings, job: str, load: int) -> list[str]:
    """Writes wall / CPU of each way."""
    cells = []
    for way in WAYS:
        wall, cpu, threads = (
            readings.typical((job, load, way), what) for what in ("wall", "cpu", "threads")
        )
        text = f"{microseconds(wall)} / {microseconds(cpu)} ({threads or 0:.0f})"
        cells.append(text if wall else "-")
    return [JOBS[job].title, str(load), *cells]


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def render(readings: Readings) -> str:
    """Writes a line for each job and load: wall / CPU of each way, then the laws' figures."""
    names = [f"{way} {what}" for way in BASES for what in ("cpu", "time")]
    head = ["job", "busy", *(f"{way}, us" for way in WAYS), *names]
    lines = [line(head), line(["---"] * len(head))]
    for job, load in sorted({key[:2] for key in readings.cells}, key=_order):
        judged = {figure.name: figure for figure in figures(readings, job, load)}
        laws = [
            "-" if name not in judged
            # The laws are about a machine that is busy.
            else str(judged[name]) if load else f"{judged[name].value:.2f}"
            for name in names
        ]  # fmt: skip
        lines.append(line([*row(readings, job, load), *laws]))
    return "\n".join(lines)


def broken(readings: Readings) -> list[str]:
    """Names the laws that do not hold, and those of which that cannot be told."""
    return [
        f"{figure.verdict}: {JOBS[job].title}, {load} busy: {figure.name} {figure.value:.2f} "
        f"±{figure.tolerance:.2f}, at most {figure.limit}"
        for job, load in sorted({key[:2] for key in readings.cells}, key=_order)
        for figure in (figures(readings, job, load) if load else ())
        if figure.verdict != "holds"
    ]


def _order(key: tuple[str, int]) -> tuple[int, int]:
    return list(JOBS).index(key[0]), key[1]
