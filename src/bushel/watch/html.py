"""Pieces of HTML for notebooks and reports: tables, bars of shares, strips of steps, pages.

Colours are inherited from the page, so that a piece is readable in light and dark mode; a page of
its own (`page`) follows the reader's system.
"""

from collections.abc import Iterable, Sequence
from html import escape

from bushel.watch.plain_text import clipped, printable

# Medium tones, which contrast with white and with black.
_COLOURS = {"here": "#6b7fa8", "thread": "#8a6fb0", "workers": "#3f8f6f"}
_STYLE = """
.bushel {font: 13px/1.45 ui-monospace, Consolas, monospace; overflow-x: auto; max-width: 100%}
.bushel table {border-collapse: collapse; border: 0; margin: .4em 0}
.bushel th, .bushel td {padding: .15em .7em .15em 0; text-align: left; vertical-align: top;
  border: 0; white-space: pre-wrap; background: none; color: inherit}
.bushel th {font-weight: 600; border-bottom: 1px solid #8888}
.bushel .right {text-align: right}
.bushel p {margin: .3em 0; max-width: 90ch; white-space: normal}
.bushel h2 {font-size: 15px; margin: 1.4em 0 .4em}
.bushel svg {display: block; max-width: 100%; height: auto}
"""
_PAGE = """
:root {color-scheme: light dark}
body {margin: 1.5em auto; max-width: 1100px; padding: 0 1em; background: #fff; color: #1b1b1b}
@media (prefers-color-scheme: dark) {body {background: #16181c; color: #e6e6e6}}
"""


def text(value: str) -> str:
    """A text, escaped.

    >>> text("<script>alert('1')</script>")
    '&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;'
    """
    return escape(printable(value), quote=True)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table; the columns with the numbers in `right` are right-aligned.

    The last cell of a short row spans the rest of the width.
    """
    lines = [_row("th", head, len(head), right)]
    lines += [_row("td", row, len(head), right) for row in rows]
    return f"<table>{''.join(lines)}</table>"


def _row(kind: str, cells: Sequence[str], width: int, right: Sequence[int]) -> str:
    made = []
    for place, cell in enumerate(cells):
        side = ' class="right"' if place in right else ""
        wide = width - place if place == len(cells) - 1 else 1
        span = f' colspan="{wide}"' if wide > 1 else ""
        made.append(f"<{kind}{side}{span}>{text(cell)}</{kind}>")
    return f"<tr>{''.join(made)}</tr>"


# Sizes of the picture of a line.
_WIDTH, _HEIGHT, _GAP = 600, 14, 2
_LEGEND_HEIGHT, _LEGEND_WIDTH = 20, 90
# The most characters that fit.
_LONGEST_NAME = 80


def strip(steps: Sequence[tuple[str, str]]) -> str:
    """A picture of a line of steps from the first on, each a name and a place, with a legend."""
    if not steps:
        return ""
    width = _WIDTH / len(steps)
    boxes = []
    for number, (name, place) in enumerate(steps):
        title = f"<title>{text(name)}: {text(place)}</title>"
        boxes.append(_box(number * width, 0, max(1.0, width - _GAP), _HEIGHT, place, title))
    for number, place in enumerate(dict.fromkeys(place for _, place in steps)):
        left = number * _LEGEND_WIDTH
        boxes.append(_box(left, _HEIGHT + 8, 8, 8, place))
        boxes.append(
            f'<text x="{left + 13}" y="{_HEIGHT + 16}" font-size="11" fill="currentColor">'
            f"{text(place)}</text>"
        )
    height = _HEIGHT + _LEGEND_HEIGHT
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'aria-label="where each step runs">{"".join(boxes)}</svg>'
    )


def _box(left: float, top: int, width: float, height: int, place: str, inner: str = "") -> str:
    colour = _COLOURS.get(place, "#888888")
    return (
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}" rx="2" '
        f'fill="{colour}">{inner}</rect>'
    )


def bars(shares: Sequence[tuple[str, str, float]]) -> str:
    """A picture of shares of a whole: a bar for each step, with its name, place and share."""
    lines = []
    for number, (name, place, share) in enumerate(shares):
        colour = _COLOURS.get(place, "#888888")
        top, wide = number * (_HEIGHT + _GAP), max(1.0, _WIDTH * share)
        lines.append(
            f'<rect x="0" y="{top}" width="{wide:.1f}" height="{_HEIGHT}" rx="2" fill="{colour}" '
            f'fill-opacity="0.6">'
            f"<title>{text(name)}: {100 * share:.1f} %</title></rect>"
            f'<text x="4" y="{top + _HEIGHT - 3}" font-size="11" fill="currentColor">'
            f"{text(clipped(name, _LONGEST_NAME))} {100 * share:.1f} %</text>"
        )
    height = len(shares) * (_HEIGHT + _GAP)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'aria-label="the share of each step">{"".join(lines)}</svg>'
    )


def piece(*content: "str | Iterable[tuple[str, str]]") -> str:
    """Content for a notebook; pairs are remarks, each with its title, or without."""
    made = "".join(
        part if isinstance(part, str) else "".join(_remark(*remark) for remark in part)
        for part in content
    )
    return f'<div class="bushel"><style>{_STYLE}</style>{made}</div>'


def heading(title: str) -> str:
    """A heading between two parts of a page."""
    return f"<h2>{text(title)}</h2>"


def _remark(title: str, sentence: str) -> str:
    return f"<p>{f'<b>{text(title)}:</b> ' if title else ''}{text(sentence)}</p>"


def page(title: str, content: str) -> str:
    """A page of its own, which loads nothing and runs nothing."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src '
        "'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{_PAGE}</style></head>"
        f"<body>{content}</body></html>\n"
    )
