"""The report's charts of threads and workers over the run, and the table of its choices."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from bushel.deliver.run_history import RunEvent, RunHistory, RunLook
from bushel.watch.chart import LEFT, WIDTH, axis, chart, label, tick
from bushel.watch.durations import duration, percent
from bushel.watch.html import table as html_table
from bushel.watch.html import text
from bushel.watch.plain_text import number, plural

_HEIGHT, _GAP, _ABOVE, _BELOW = 90, 26, 16, 20
_WAIT, _BUSY, _READY = "#b0603a", "#3f8f6f", "#6b7fa8"
# Shorter periods between samples say nothing about shares.
_SHORTEST = 1e-3
_HEAD = ("#", "after", "elements", "what", "now")


def picture_of_course(history: RunHistory) -> str:
    """Shares of time, and numbers of workers and blocks, over the time of the run."""
    looks = history.looks
    if len(looks) < 2 or looks[-1].seconds <= 0:
        return _table_of(history)
    scale = WIDTH / looks[-1].seconds
    panels = [_shares(looks, scale)]
    if any(look.workers or look.ready_blocks for look in looks):
        panels.append(_numbers(looks, scale, _ABOVE + _HEIGHT + _GAP))
    height = _ABOVE + len(panels) * (_HEIGHT + _GAP) - _GAP + _BELOW
    marks = [_mark(one, place, scale, height) for place, one in enumerate(history.events, 1)]
    below = axis(height - 4, "0", duration(looks[-1].seconds))
    drawn = chart([*panels, *marks, below], height, "the course of the run")
    return drawn + _table_of(history)


def _shares(looks: Sequence[RunLook], scale: float) -> str:
    """The share of its time that the loop waited, and that workers were busy."""
    waited = _rates(looks, scale, lambda one, two: two.wait_seconds - one.wait_seconds, _elapsed)
    lines = [tick(_ABOVE + _HEIGHT * (1 - share), percent(share)) for share in (0.0, 0.5, 1.0)] + [
        _line(waited, _WAIT, filled=True)
    ]
    names = [(_WAIT, "the loop waited")]
    if looks[-1].workers:
        busy = _rates(looks, scale, lambda one, two: two.busy_seconds - one.busy_seconds, _worked)
        lines.append(_line(busy, _BUSY))
        names.append((_BUSY, "workers were busy"))
    return "".join(lines) + _legend(_ABOVE - 5, names)


def _elapsed(one: RunLook, two: RunLook) -> float:
    return two.seconds - one.seconds


def _worked(one: RunLook, two: RunLook) -> float:
    return two.busy_seconds - one.busy_seconds + two.idle_seconds - one.idle_seconds


def _rates(
    looks: Sequence[RunLook],
    scale: float,
    part: Callable[[RunLook, RunLook], float],
    whole: Callable[[RunLook, RunLook], float],
) -> list[tuple[float, float, float]]:
    """Start, end and height for each period between two samples."""
    found = []
    for one, two in pairwise(looks):
        of = whole(one, two)
        share = min(1.0, max(0.0, part(one, two) / of)) if of > _SHORTEST else 0.0
        left, right = (LEFT + scale * look.seconds for look in (one, two))
        found.append((left, right, _ABOVE + _HEIGHT * (1 - share)))
    return found


def _numbers(looks: Sequence[RunLook], scale: float, top: float) -> str:
    """The numbers of workers, and of ready blocks."""
    most = max(1, *(max(look.workers, look.ready_blocks) for look in looks))

    def stairs(figure: Callable[[RunLook], int]) -> list[tuple[float, float, float]]:
        return [
            (
                LEFT + scale * one.seconds,
                LEFT + scale * two.seconds,
                top + _HEIGHT * (1 - figure(two) / most),
            )
            for one, two in pairwise(looks)
        ]

    lines = [tick(top + _HEIGHT * (1 - value / most), number(value)) for value in (0, most)]
    lines.append(_line(stairs(lambda look: look.ready_blocks), _READY, filled=True, top=top))
    names = [(_READY, "blocks ready")]
    if any(look.workers for look in looks):
        lines.append(_line(stairs(lambda look: look.workers), _BUSY))
        names.append((_BUSY, "workers"))
    return "".join(lines) + _legend(top - 5, names)


def _line(
    stairs: Sequence[tuple[float, float, float]],
    colour: str,
    filled: bool = False,
    top: float = _ABOVE,
) -> str:
    points = [f"{at:.1f} {height:.1f}" for left, right, height in stairs for at in (left, right)]
    drawn = f'<path d="M{" L".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    if not filled:
        return drawn
    base = top + _HEIGHT
    area = [f"{stairs[0][0]:.1f} {base:.1f}", *points, f"{stairs[-1][1]:.1f} {base:.1f}"]
    return f'<path d="M{" L".join(area)} Z" fill="{colour}" fill-opacity="0.35"/>' + drawn


def _legend(bottom: float, names: Sequence[tuple[str, str]]) -> str:
    made = []
    for place, (colour, name) in enumerate(names):
        left = LEFT + 170 * place
        made.append(
            f'<rect x="{left}" y="{bottom - 8:.1f}" width="8" height="8" rx="2" fill="{colour}"/>'
            + label(left + 13, bottom, "start", name)
        )
    return "".join(made)


def _mark(event: RunEvent, place: int, scale: float, height: int) -> str:
    at = LEFT + min(WIDTH, scale * event.seconds)
    title = f"<title>{text(f'{event.what}: {event.text}')}</title>"
    return (
        f'<path d="M{at:.1f} {_ABOVE} V{height - _BELOW}" stroke="currentColor" '
        f'stroke-width="1" stroke-dasharray="2 3" class="event">{title}</path>'
        + label(at + 2, _ABOVE + 9, "start", str(place))
    )


def _table_of(history: RunHistory) -> str:
    """A table of choices and events, with the numbers in the picture."""
    if not history.events:
        return ""
    rows = [
        [str(place), duration(one.seconds), number(one.elements), one.what, one.text]
        for place, one in enumerate(history.events, 1)
    ]
    before = ""
    if history.forgotten:
        before = f"<p>{text(plural(history.forgotten, 'event'))} before these are not shown.</p>"
    return before + html_table(_HEAD, rows, right=(0, 1, 2))
