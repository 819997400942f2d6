"""Formats numbers, words and tables as text."""

from collections.abc import Sequence
from textwrap import fill

# Longer cells are cut short, except the last one of a row.
_WIDEST = 44
_PAGE = 100


def printable(text: str) -> str:
    """The text in one line, for any terminal, log and page.

    >>> printable("two\\nlines, half of a pair \\ud800")
    'two\\\\nlines, half of a pair \\\\ud800'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def clipped(text: str, width: int = _WIDEST) -> str:
    """The text, shortened to this width.

    >>> clipped("proportions", 6)
    'propo…'
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"


def number(value: int) -> str:
    """A whole number in readable form.

    >>> number(1281167)
    '1,281,167'
    """
    return f"{value:,}"


def size(count: int) -> str:
    """A number of bytes in readable form.

    >>> size(900), size(146_000_000_000)
    ('900 bytes', '146 GB')
    """
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if value >= 100 or unit == "bytes" else f"{value:.3g} {unit}"


def plural(count: int, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "file"), plural(1024, "file")
    ('1 file', '1,024 files')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def paragraph(title: str, sentence: str) -> str:
    """A note of several lines, with its title before the first."""
    return fill(sentence, _PAGE, initial_indent=f"{title}: ", subsequent_indent=" " * 8)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Aligned columns; those with the numbers in `right` are right-aligned.

    The last cell of a short row may have any length.

    >>> print(table(["#", "step", "elements"], [["1", "batch(2)", "50"], ["0", "range"]], [2]))
    #  step      elements
    1  batch(2)        50
    0  range
    """
    lines = [[*map(clipped, row[:-1]), row[-1]] for row in (head, *rows)]
    widths = [0] * len(head)
    for line in lines:
        short = len(line) < len(head)
        for place, cell in enumerate(line[:-1] if short else line):
            widths[place] = max(widths[place], len(cell))
    return "\n".join(_aligned(line, widths, right) for line in lines)


def _aligned(line: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    cells = (
        cell.rjust(width) if place in right else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(line, widths, strict=False))
    )
    return "  ".join(cells).rstrip()
