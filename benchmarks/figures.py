"""Draws the table of the workloads: how many times as good bushel is as others, as SVG.

    python -m benchmarks --draw ratios.svg     of a run, when it is done
    python -m benchmarks.figures               of the table in README.md, for the documentation

A picture has no background, and turns light or dark with the page that it is on.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

from benchmarks.table import Row

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "docs" / "figures" / "ratios.svg"

_LEFT, _WIDTH, _TOP, _LINE = 330, 400, 62, 22
_STYLE = """
  svg { font: 12px system-ui, sans-serif; fill: #3b3431 }
  .small { font-size: 11px; fill: #6f625c } .title { font-size: 14px; font-weight: 600 }
  .grid { stroke: #8d7b74; stroke-width: 0.5; opacity: 0.4 }
  .one { stroke: #3b3431; stroke-width: 1.2 }
  .grain { fill: #d99a3f } .hand { fill: #2f6f9f }
  @media (prefers-color-scheme: dark) {
    svg { fill: #e4ddd8 } .small { fill: #b3a69e } .grid { stroke: #a08f86 }
    .one { stroke: #e4ddd8 } .grain { fill: #d99a3f } .hand { fill: #7fc4f0 }
  }
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A workload, and how many times as good bushel is; None where there is nothing like it."""

    title: str
    to_hand: float | None
    to_grain: float | None


def from_rows(rows: Sequence[Row]) -> list[Figure]:
    """The figures of a run."""
    ratios = [(row.title, row.ratios("hand"), row.ratios("grain")) for row in rows]
    return [
        Figure(title, median(hand) if hand else None, median(grain) if grain else None)
        for title, hand, grain in ratios
    ]


def from_readme(text: str) -> list[Figure]:
    """The figures of the table that the README shows.

    >>> line = "| `map`, shuffled (by hand: a loop) | 1 | 2 | 3 | 4 | 0.50 | 1,970 |"
    >>> from_readme("bushel : hand |\\n| --- |\\n" + line)
    [Figure(title='map, shuffled', to_hand=0.5, to_grain=1970.0)]
    """
    rows = text.partition("bushel : hand")[2].partition("\n\n")[0].splitlines()[2:]
    found = []
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        title = re.sub(r" \(by hand: .*?\)|`|</?sup>", "", cells[0])
        hand, grain = (float(cell.replace(",", "")) if cell else None for cell in cells[5:7])
        found.append(Figure(title, hand, grain))
    return found


def draw(figures: Sequence[Figure], source: str) -> str:
    """Gives the picture as text, workloads in their order."""
    figures = [one for one in figures if one.to_hand or one.to_grain]
    values = [value for one in figures for value in (one.to_hand, one.to_grain) if value]
    low = min(0.1, 10.0 ** math.floor(math.log10(min(values))))
    high = 10.0 ** math.ceil(math.log10(max(values)))

    def x_of(value: float) -> float:
        share = math.log10(value / low) / math.log10(high / low)
        return _LEFT + share * _WIDTH

    bottom = _TOP + _LINE * len(figures)
    width, height = _LEFT + _WIDTH + 56, bottom + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        'aria-label="How many times as fast bushel is, workload by workload">',
        f"<style>{_STYLE}</style>",
        _text(0, 16, "How many times as good bushel is", "title"),
        f'<rect x="{_LEFT}" y="6" width="14" height="10" class="grain"/>',
        _text(_LEFT + 20, 15, "as Grain 0.2.18"),
        f'<circle cx="{_LEFT + 147}" cy="11" r="5" class="hand"/>',
        _text(_LEFT + 158, 15, "as the same work written by hand"),
    ]
    power = low
    while power <= high * 1.001:
        x = x_of(power)
        kind = "one" if math.isclose(power, 1.0) else "grid"
        parts.append(f'<path d="M{x:.1f} {_TOP - 12}V{bottom}" class="{kind}"/>')
        parts.append(_text(x, _TOP - 18, f"{power:g}", "small", "middle"))
        power *= 10
    for number, one in enumerate(figures):
        y = _TOP + _LINE * number
        parts.append(_text(_LEFT - 12, y + 13, _short(one.title), "", "end"))
        if one.to_grain:
            start, stop = sorted((x_of(1.0), x_of(one.to_grain)))
            parts.append(
                f'<rect x="{start:.1f}" y="{y + 4}" width="{max(stop - start, 1):.1f}" '
                'height="11" class="grain"/>'
            )
            parts.append(_text(stop + 6, y + 13, _digits(one.to_grain), "small"))
        if one.to_hand:
            x = x_of(one.to_hand)
            parts.append(f'<circle cx="{x:.1f}" cy="{y + 9.5}" r="5" class="hand"/>')
    parts.append(_text(0, bottom + 30, source, "small"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _short(title: str) -> str:
    return title if len(title) <= 46 else title[:45].rstrip(" ,(") + "…"


def _text(x: float, y: float, words: str, kind: str = "", at: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y}" class="{kind}" text-anchor="{at}">{escape(words)}</text>'


def recorded() -> str:
    """The picture of the documentation."""
    figures = from_readme((ROOT / "README.md").read_text())
    return draw(figures, "Of the table in README.md: medians of runs of `make bench` on two cores.")


if __name__ == "__main__":
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(recorded())
    print(f"drawn: {RECORDED}")
