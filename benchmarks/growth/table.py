"""Writes what was measured: for each axis, a table of cost and one of all else."""

from benchmarks.growth.law import against, growth
from benchmarks.growth.run import Line

COLUMNS = {
    "cost": ("an element", "us", 1e6),
    "first": ("first", "ms", 1e3),
    "early": ("first 640", "ms", 1e3),
    "restore": ("restore", "ms", 1e3),
    "state": ("state", "kB", 1e-3),
    "memory": ("memory", "MB", 1e-6),
}


def render(title: str, lines: list[Line]) -> str:
    """One table: a row for each pipeline and figure, bushel's, with Grain's after a stroke."""
    sizes = [point.size for point in max(lines, key=lambda line: len(line.points)).points]
    head = [title, "", *(f"{size:,}" for size in sizes), "growth", "worst / Grain"]
    rows = [head, ["---", "---", *["---:"] * (len(sizes) + 2)]]
    grain = {line.variant: line for line in lines if line.system == "grain"}
    for line in lines:
        if line.system == "bushel":
            rows += [_row(line, grain.get(line.variant), what, sizes) for what in COLUMNS]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(line: Line, other: Line | None, what: str, sizes: list[int]) -> list[str]:
    name, unit, scale = COLUMNS[what]
    cells = []
    for size in sizes:
        ours, theirs = _figure(line, what, size, scale), ""
        if other is not None:
            theirs = f" / {_figure(other, what, size, scale)}"
        cells.append(ours + theirs)
    factor = growth(line, what).factor
    ratios = [ratio for _, ratio in against(line, other, what)] if other is not None else []
    return [
        line.title if what == "cost" else "",
        f"{name}, {unit}",
        *cells,
        "-" if factor is None else digits(factor),
        digits(max(ratios)) if ratios else "-",
    ]


def _figure(line: Line, what: str, size: int, scale: float) -> str:
    for point in line.points:
        if point.size == size:
            if what in point.figures:
                return digits(point.figures[what] * scale) + ("*" if point.cut else "")
            return "cut" if point.cut else "-"
    return "cut"


def digits(value: float) -> str:
    """Writes about three digits, whatever the size.

    >>> [digits(x) for x in (0.00123, 0.0456, 1.284, 42.19, 8123.0)]
    ['0.0012', '0.046', '1.28', '42.2', '8,123']
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1 else f"{value:.2g}"
