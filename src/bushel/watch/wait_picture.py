"""The report's chart of waits over a run, as SVG."""

import math
from collections.abc import Sequence
from itertools import pairwise

from bushel.deliver.wait_history import WaitColumn
from bushel.watch.chart import LEFT, WIDTH, axis, chart, tick
from bushel.watch.durations import duration
from bushel.watch.plain_text import plural

_HEIGHT, _BELOW, _ABOVE = 180, 20, 8
_COLOUR = "#3f8f6f"
# Nobody can tell shorter waits apart.
_SHORTEST = 1e-7


def picture_of_waits(waits: Sequence[WaitColumn], elements: int) -> str:
    """The least, mean and longest wait by the elements that were handed out before."""
    if not waits:
        return ""
    lowest = math.floor(_power(min(one.least for one in waits)))
    highest = max(lowest + 1, math.ceil(_power(max(one.longest for one in waits))))

    def height(seconds: float) -> float:
        return _ABOVE + _HEIGHT * (highest - _power(seconds)) / (highest - lowest)

    edges = [LEFT + WIDTH * start / max(1, elements) for start in _starts(waits)]
    edges.append(LEFT + WIDTH)
    above = _stairs(edges, [height(one.longest) for one in waits])
    below = _stairs(edges, [height(one.least) for one in waits])
    mean = _stairs(edges, [height(one.mean) for one in waits])
    lines = [
        tick(height(10.0**power), duration(10.0**power)) for power in range(lowest, highest + 1)
    ]
    lines.append(
        f'<path d="M{" L".join([*above, *reversed(below)])} Z" fill="{_COLOUR}" '
        f'fill-opacity="0.4" stroke="{_COLOUR}" stroke-opacity="0.4"/>'
        f'<path d="M{" L".join(mean)}" fill="none" stroke="currentColor"/>'
    )
    total = _ABOVE + _HEIGHT + _BELOW
    lines.append(axis(total - 4, "0", plural(elements, "element")))
    each = waits[0].waits
    return (
        f"{chart(lines, total, 'waits')}"
        f"<p>Each column is {plural(each, 'wait')}: from the shortest to the longest, and their "
        "mean as a line. What came without a wait, because it was made together with the element "
        "before, is not among them.</p>"
    )


def _power(seconds: float) -> float:
    return math.log10(max(seconds, _SHORTEST))


def _starts(waits: Sequence[WaitColumn]) -> list[float]:
    """Elements before each column; of those with several waits it is known for the last one."""
    starts = [0.0]
    for before, one in pairwise(waits):
        between = one.elements - before.elements
        starts.append(one.elements - between * (one.waits - 1) / one.waits)
    return starts


def _stairs(edges: Sequence[float], heights: Sequence[float]) -> list[str]:
    return [
        f"{edge:.1f} {height:.1f}"
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True)
        for edge in (left, right)
    ]
