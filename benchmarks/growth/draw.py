"""Draws an axis, log-log, as SVG: a row for each figure, a column for each pipeline."""

import math
from collections.abc import Sequence
from html import escape

from benchmarks.growth.run import Line
from benchmarks.growth.table import COLUMNS, digits

WIDTH, HEIGHT = 168, 104  # of the field of one panel
LEFT, TOP, GAP_X, GAP_Y, BOTTOM = 116, 66, 16, 20, 58
DRAWN = ("cost", "early", "restore", "state", "memory")
STYLE = """
  svg { background: #fff; font: 11px system-ui, sans-serif; fill: #333 }
  .field { fill: #f6f7f9 } .grid { stroke: #dde1e6; stroke-width: 1 }
  .bushel { stroke: #0b6e99; fill: #0b6e99 } .grain { stroke: #c2571a; fill: #c2571a }
  polyline { fill: none !important; stroke-width: 2; stroke-linejoin: round }
  polyline.grain { stroke-dasharray: 5 3; stroke-width: 1.6 }
  .cut { fill: #fff } .title { font-size: 14px; font-weight: 600 } .small { fill: #777 }
  @media (prefers-color-scheme: dark) {
    svg { background: #16181c; fill: #d5d8dd } .field { fill: #1e2126 } .grid { stroke: #343941 }
    .bushel { stroke: #5bc0eb; fill: #5bc0eb } .grain { stroke: #f08a4b; fill: #f08a4b }
    .cut { fill: #16181c } .small { fill: #8b929c }
  }
"""


class Scale:
    """Maps values to a stretch of the picture by their logarithm, with room at both ends."""

    def __init__(self, values: Sequence[float], start: float, stop: float) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        room = 0.08 * max(high - low, 1.0)
        self._low, self._high = low - room, high + room
        self._start, self._stop = start, stop

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._stop - self._start)

    def powers(self) -> list[float]:
        """The powers of ten in sight, a few of them."""
        powers = range(math.ceil(self._low), math.floor(self._high) + 1)
        step = max(1, math.ceil(len(powers) / 5))
        return [10.0**power for power in powers if power % step == 0]


def draw(title: str, lines: list[Line]) -> str:
    """Gives the picture as text; panels of a row share their scale."""
    variants = list(dict.fromkeys(line.variant for line in lines))
    rows = [what for what in DRAWN if any(_shown(line, what) for line in lines)]
    sizes = [point.size for line in lines for point in line.points]
    width = LEFT + len(variants) * (WIDTH + GAP_X) + 8
    height = TOP + len(rows) * (HEIGHT + GAP_Y) + BOTTOM - GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        _text(LEFT, 20, f"Growing: {title}", "title"),
        _key(width),
    ]
    for row, what in enumerate(rows):
        top = TOP + row * (HEIGHT + GAP_Y)
        shown = [value for line in lines for _, value in _shown(line, what)]
        vertical = Scale(shown, top + HEIGHT, top)
        name, unit, _ = COLUMNS[what]
        parts.append(_text(10, top + HEIGHT / 2 - 5, name))
        parts.append(_text(10, top + HEIGHT / 2 + 9, unit, "small"))
        for column, variant in enumerate(variants):
            left = LEFT + column * (WIDTH + GAP_X)
            horizontal = Scale(sizes, left, left + WIDTH)
            own = [line for line in lines if line.variant == variant]
            if not row:
                parts.append(_text(left, top - 8, own[0].title))
            parts.append(_grid(left, top, horizontal, vertical, not column, what == rows[-1]))
            # Grain's first, so that ours is on top.
            for line in sorted(own, key=lambda line: line.system, reverse=True):
                parts.append(_curve(line, what, horizontal, vertical))
    parts.append(_text(LEFT, height - 10, f"{title} (both axes by powers of ten)", "small"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _shown(line: Line, what: str) -> list[tuple[int, float]]:
    scale = COLUMNS[what][2]
    # There is no place for 0, nor for less than a few pages.
    least = {"memory": 0.1, "state": 0.01}.get(what, 1e-12)
    return [(size, max(value * scale, least)) for size, value in line.values(what)]


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _key(width: float) -> str:
    return (
        f'<polyline class="bushel" points="{width - 190},16 {width - 162},16"/>'
        + _text(width - 156, 20, "bushel")
        + f'<polyline class="grain" points="{width - 104},16 {width - 76},16"/>'
        + _text(width - 70, 20, "Grain")
    )


def _grid(left: float, top: float, x: Scale, y: Scale, names_y: bool, names_x: bool) -> str:
    parts = [f'<rect class="field" x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}"/>']
    for value in x.powers():
        at = x(value)
        parts.append(f'<path class="grid" d="M{at:.1f} {top}v{HEIGHT}"/>')
        if names_x:
            parts.append(_text(at, top + HEIGHT + 14, _power(value), "small", "middle"))
    for value in y.powers():
        at = y(value)
        parts.append(f'<path class="grid" d="M{left} {at:.1f}h{WIDTH}"/>')
        if names_y:
            parts.append(_text(left - 6, at + 4, digits(value), "small", "end"))
    return "".join(parts)


def _power(value: float) -> str:
    """Writes a power of ten so that it fits.

    >>> [_power(x) for x in (1.0, 100.0, 10_000.0, 1e12)]
    ['1', '100', '10⁴', '10¹²']
    """
    power = round(math.log10(value))
    if power <= 3:
        return f"{value:g}"
    return "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(power))


def _curve(line: Line, what: str, x: Scale, y: Scale) -> str:
    places = [(size, x(size), y(value)) for size, value in _shown(line, what)]
    if not places:
        return ""
    cut = {point.size for point in line.points if point.cut}
    points = " ".join(f"{across:.1f},{up:.1f}" for _, across, up in places)
    marks = "".join(
        f'<circle class="{line.system}{" cut" if size in cut else ""}" '
        f'cx="{across:.1f}" cy="{up:.1f}" r="2.6"/>'
        for size, across, up in places
    )
    return f'<polyline class="{line.system}" points="{points}"/>{marks}'
