"""`bushel diff`: compares two recorded runs: the first difference, and the wait of each."""

from itertools import pairwise
from typing import Any

from bushel.checkpoint.differences import differing_steps
from bushel.core.frozen import frozen
from bushel.watch.durations import duration, percent
from bushel.watch.plain_text import number, plural, table
from bushel.watch.recording import Entry, Recording

# The most ranges of a run for which waits are shown.
_STRETCHES = 8


@frozen
class RunsCompared:
    """The comparison of two recorded runs."""

    names: tuple[str, str]
    # The differences of the pipelines, in words; empty if there are none.
    pipelines: str
    # The steps that both recorded.
    compared: tuple[int, ...]
    # The first step at which something differs, and what, in words; None if nothing does.
    step: int | None
    what: str
    # The end of each range, and the wait and the seconds of both runs in it.
    waits: tuple[tuple[int, tuple[float, float], tuple[float, float]], ...]

    @property
    def same(self) -> bool:
        """Whether no difference is known."""
        return self.step is None and not self.pipelines

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON takes."""
        return {
            "runs": list(self.names),
            "pipelines": self.pipelines,
            "compared_steps": len(self.compared),
            "first_difference": self.step,
            "what": self.what,
            "waits": [
                {"up_to_step": step, "wait": [a[0], b[0]], "seconds": [a[1], b[1]]}
                for step, a, b in self.waits
            ],
        }

    def __str__(self) -> str:
        lines = [f"pipelines differ: {self.pipelines}"] if self.pipelines else []
        if not self.compared:
            lines.append("no step is recorded in both")
        else:
            first, last = self.compared[0], self.compared[-1]
            lines.append(
                f"{plural(len(self.compared), 'step')} recorded in both, from {number(first)} to "
                f"{number(last)}"
            )
            lines.append(
                "states and checksums are equal at all of them"
                if self.step is None
                else f"they differ from step {number(self.step)} on: {self.what}"
            )
        if self.step is not None and self.compared[0] < self.step:
            equal = max(step for step in self.compared if step < self.step)
            lines.append(f"(they were equal at step {number(equal)}, the last one before)")
        if self.waits:
            rows = [
                [f"up to {number(step)}", *(_waited(*of) for of in both)]
                for step, *both in self.waits
            ]
            lines.append(table(["waits", *self.names], rows, right=(1, 2)))
        return "\n".join(lines)


def compared(one: Recording, other: Recording) -> RunsCompared:
    """Compares two runs at the steps that both recorded."""
    olds, news = _by_step(one), _by_step(other)
    both = sorted(olds.keys() & news.keys())
    found: tuple[int | None, str] = (None, "")
    for step in both:
        what = _difference(olds[step], news[step])
        if what:
            found = step, what
            break
    return RunsCompared(
        (one.path, other.path),
        differing_steps(one.pipeline, other.pipeline),
        tuple(both),
        *found,
        tuple(_waits(olds, news, both)),
    )


def _by_step(recording: Recording) -> dict[int, Entry]:
    """The steps by number; the last time of each that came again."""
    return {entry["step"]: entry for entry in recording.steps}


def _difference(old: Entry, new: Entry) -> str:
    states = None not in (old["state"], new["state"]) and old["state"] != new["state"]
    sums = None not in (old["crc"], new["crc"]) and old["crc"] != new["crc"]
    crcs = f"{old['crc']} and {new['crc']}"
    if states and sums:
        return f"other states, and other bytes (checksums {crcs})"
    if sums:
        return f"the states are equal, and the bytes are not (checksums {crcs})"
    return "other states, with the same bytes" if states else ""


def _waits(
    olds: dict[int, Entry], news: dict[int, Entry], both: list[int]
) -> list[tuple[int, tuple[float, float], tuple[float, float]]]:
    stride = max(1, -(-(len(both) - 1) // _STRETCHES))
    ends = [*both[:-1:stride], *both[-1:]] if len(both) > 1 else []
    return [
        (stop, _sum(olds, start, stop), _sum(news, start, stop)) for start, stop in pairwise(ends)
    ]


def _sum(entries: dict[int, Entry], start: int, stop: int) -> tuple[float, float]:
    within = [entry for step, entry in entries.items() if start < step <= stop]
    return sum(one["wait"] for one in within), sum(one["seconds"] for one in within)


def _waited(wait: float, seconds: float) -> str:
    share = percent(wait / seconds) if seconds else "0 %"
    return f"{share} of {duration(seconds)}"
