"""What the cells say: medians, and where a law is broken."""

from dataclasses import dataclass, field
from statistics import median

from benchmarks.busy.jobs import JOBS, WAYS

# No job uses more than this many times the CPU that it uses inline,
MOST_CPU = 1.15
# nor is it slower by more than this than the better of inline and threads.
MOST_TIME = 1.10

Reading = dict[str, float]
Key = tuple[str, int, str]  # job, load, way


@dataclass(slots=True)
class Readings:
    """All readings, by job, number of busy processes and way."""

    cells: dict[Key, list[Reading]] = field(default_factory=dict)

    def add(self, key: Key, reading: Reading) -> None:
        self.cells.setdefault(key, []).append(reading)

    def typical(self, key: Key, what: str) -> float | None:
        readings = self.cells.get(key)
        return median(reading[what] for reading in readings) if readings else None

    def ratio(self, key: Key, other: Key, what: str) -> float | None:
        """The median over the rounds: those of one round were measured side by side."""
        pairs = zip(self.cells.get(key, []), self.cells.get(other, []), strict=False)
        ratios = [a[what] / b[what] for a, b in pairs if b[what] > 0]
        return median(ratios) if ratios else None


def verdicts(readings: Readings, job: str, load: int) -> dict[str, float]:
    """The four figures that the laws are about; those that were not measured are left out."""
    found: dict[str, float] = {}
    for name, base in (("default", "inline"), ("workers", "workers0")):
        cpu = readings.ratio((job, load, name), (job, load, base), "cpu")
        times = [readings.ratio((job, load, name), (job, load, base), "wall")]
        if name == "default":
            times.append(readings.ratio((job, load, name), (job, load, "threads"), "wall"))
        known = [time for time in times if time is not None]
        if cpu is not None:
            found[f"{name} cpu"] = cpu
        if known:
            found[f"{name} time"] = max(known)  # against the better of those
    return found


def broken(figures: dict[str, float]) -> list[str]:
    limits = {"cpu": MOST_CPU, "time": MOST_TIME}
    return [name for name, value in figures.items() if value > limits[name.split()[1]]]


def microseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e6:.3g}"


def render(readings: Readings) -> str:
    """Writes a line for each job and load: wall/CPU of each way, then the laws' figures."""
    names = ("default cpu", "default time", "workers cpu", "workers time")
    head = ["job", "busy", *(f"{way}, us" for way in WAYS), *names]
    lines = [head, ["---"] * len(head)]
    for job, load in sorted({key[:2] for key in readings.cells}, key=_order):
        cells = []
        for way in WAYS:
            wall = readings.typical((job, load, way), "wall")
            cpu = readings.typical((job, load, way), "cpu")
            threads = readings.typical((job, load, way), "threads")
            cells.append(
                f"{microseconds(wall)} / {microseconds(cpu)} ({threads or 0:.0f})" if wall else "-"
            )
        figures = verdicts(readings, job, load)
        wrong = broken(figures)
        for name in names:
            text = f"{figures[name]:.2f}" if name in figures else "-"
            cells.append(f"**{text}**" if name in wrong else text)
        lines.append([JOBS[job].title, str(load), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _order(key: tuple[str, int]) -> tuple[int, int]:
    return list(JOBS).index(key[0]), key[1]
