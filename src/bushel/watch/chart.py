"""Parts of the report's SVG charts: frame, grid lines, labels."""

from collections.abc import Iterable

from bushel.watch.html import text

# Room for the labels on the left, and the width of what is drawn.
LEFT, WIDTH = 60, 800


def chart(parts: Iterable[str], height: int, name: str) -> str:
    """What was drawn, as one picture; `name` is for those who do not see it."""
    width = LEFT + WIDTH
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{text(name)}">{"".join(parts)}</svg>'
    )


def tick(height: float, name: str) -> str:
    """A thin line across at a height, with what it stands for on its left."""
    return (
        f'<path d="M{LEFT} {height:.1f} H{LEFT + WIDTH}" stroke="#8888" stroke-width="0.5"/>'
        + label(LEFT - 6, height + 4, "end", name)
    )


def axis(bottom: float, first: str, last: str) -> str:
    """What the left and the right end of the drawing stand for."""
    return label(LEFT, bottom, "start", first) + label(LEFT + WIDTH, bottom, "end", last)


def label(left: float, bottom: float, anchor: str, words: str) -> str:
    """Words that begin, or end, at a place."""
    return (
        f'<text x="{left:.1f}" y="{bottom:.1f}" font-size="11" fill="currentColor" '
        f'text-anchor="{anchor}">{text(words)}</text>'
    )
