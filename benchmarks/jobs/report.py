"""The table of a job, and the lines that say how it goes on."""

import sys
from statistics import median

from benchmarks.jobs.job import Job
from benchmarks.jobs.measure import Outcome
from benchmarks.table import MISSING, ratio, three_digits

FIGURES = ("first batch", "memory", "CPU each")
SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def render(job: Job, outcome: Outcome) -> str:
    """Writes a line for each entry, the quickest first."""
    by_hand = outcome.readings.get(job.entries[0].name, [])
    header = [job.title, job.unit, "/hand", *FIGURES, "resume"]
    rows = []
    for name, readings in outcome.readings.items():
        rates = [reading["rate"] for reading in readings]
        shares = [
            reading["rate"] / hand["rate"] for reading, hand in zip(readings, by_hand, strict=False)
        ]
        cells = [
            name,
            scaled(median(rates), SCALES),
            ratio(shares),
            *figures(readings),
            resume(readings),
        ]
        rows.append((median(rates), cells))
    rows.sort(key=lambda row: -row[0])
    lines = [header, *(cells for _, cells in rows)]
    if all(cells[-1] == MISSING for _, cells in rows):
        lines = [line[:-1] for line in lines]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]

    def write(line: list[str]) -> str:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return f"| {' | '.join([first, *others])} |"

    rule = "|".join("-" * (width + 1) + ("-" if c == 0 else ":") for c, width in enumerate(widths))
    written = [write(lines[0]), f"|{rule}|", *map(write, lines[1:])]
    written += [f"{job.name}: {name} failed: {why}" for name, why in outcome.failures.items()]
    return "\n".join(written)


def tell(job: Job, who: str, reading: dict[str, float]) -> None:
    """Prints one reading as soon as there is one."""
    described = zip(FIGURES, figures([reading]), strict=True)
    others = ", ".join(f"{name} {figure}" for name, figure in described)
    rate = f"{scaled(reading['rate'], SCALES)} {job.unit}"
    print(f"{who}: {rate}, {others}", file=sys.stderr, flush=True)


def figures(readings: list[dict[str, float]]) -> list[str]:
    """Writes the medians of `FIGURES`."""
    return [
        f"{three_digits(median(r['first batch'] for r in readings))} s",
        f"{median(r['memory'] for r in readings) / 1e6:.0f} MB",
        f"{scaled(median(r['cpu'] for r in readings), SMALL)}s",
    ]


def resume(readings: list[dict[str, float]]) -> str:
    times = [reading["resume"] for reading in readings if "resume" in reading]
    if not times:
        return MISSING
    exact = all(reading["exact"] for reading in readings if "resume" in reading)
    return f"{three_digits(median(times))} s{'' if exact else ', NOT exact'}"


def scaled(value: float, scales: tuple[tuple[float, str], ...]) -> str:
    """Writes a number with a letter for its size.

    >>> scaled(1_234_567, SCALES), scaled(0.000_25, SMALL)
    ('1.23M', '250 µ')
    """
    scale, letter = next((pair for pair in scales if value >= pair[0]), scales[-1])
    space = " " if scales is SMALL else ""
    return f"{three_digits(value / scale)}{space}{letter}"
