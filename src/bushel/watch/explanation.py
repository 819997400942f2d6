"""The result of `explain()`: the steps, where each runs, and advice."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bushel.run.cut import HERE, THREAD, WORKERS
from bushel.watch.html import piece, strip
from bushel.watch.html import table as html_table
from bushel.watch.plain_text import number, paragraph, plural, printable
from bushel.watch.plain_text import table as text_table

# The least number of similar parts that are shown as one line; and the most lines.
_ALIKE = 4
_MOST_LINES = 200
_HEAD = ("#", "step", "elements", "runs", "kind", "note")


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """One step of a pipeline."""

    # Counted from the source on.
    number: int
    # As a user would write it.
    name: str
    # The name of the node's kind (see `bushel.core.node`).
    kind: str
    # The number of elements; None if unknown in advance.
    elements: int | None = None
    # Whether some of these may be dropped.
    at_most: bool = False
    endless: bool = False
    # "here", "thread" (one that prefetches) or "workers"; None for a step that does no work itself.
    place: str | None = None
    workers: int | str = 0
    # The most threads that prefetch in that place.
    threads: int = 0
    # Whether it runs here between steps that run in workers.
    in_order: bool = False
    notes: tuple[str, ...] = ()
    # Its inputs, unless that is just the step before.
    parts: "tuple[ExplainedPart, ...]" = ()

    @property
    def count(self) -> str:
        """The number of elements as text."""
        if self.endless:
            return "endless"
        if self.elements is None:
            return "?"
        return f"{'<= ' * self.at_most}{number(self.elements)}"

    @property
    def runs(self) -> str:
        """Where it runs, as text."""
        if self.place is None:
            return ""
        workers = self.workers
        there = plural(workers, "worker") if isinstance(workers, int) else f"workers ({workers})"
        place = {HERE: "here", THREAD: "a thread", WORKERS: there}
        words = [place[self.place]]
        if self.in_order:
            words.append("in order")
        if self.threads:
            words.append(f"<= {plural(self.threads, 'thread')}")
        return ", ".join(words)

    @property
    def note(self) -> str:
        """All notes as text."""
        return "; ".join(self.notes)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON takes."""
        return {
            "number": self.number,
            "name": self.name,
            "kind": self.kind,
            "elements": self.elements,
            "at_most": self.at_most,
            "endless": self.endless,
            "place": self.place,
            "workers": self.workers,
            "threads": self.threads,
            "in_order": self.in_order,
            "notes": list(self.notes),
            "parts": [part.to_dict() for part in self.parts],
        }


@dataclass(frozen=True, slots=True)
class ExplainedPart:
    """One of several inputs of a step; or many that are similar."""

    name: str
    steps: tuple[ExplainedStep, ...]
    # The number of similar parts, itself included.
    alike: int = 1
    # All elements of those, if all are known.
    elements: int | None = None

    @property
    def title(self) -> str:
        """Its title as text."""
        if self.alike == 1:
            return f"{self.name}:"
        known = self.elements is not None
        together = f", together {number(self.elements or 0)} elements" if known else ""
        return f"{number(self.alike)} parts like {self.name}{together}:"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON takes."""
        return {
            "name": self.name,
            "alike": self.alike,
            "elements": self.elements,
            "steps": [step.to_dict() for step in self.steps],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The description of a pipeline: its steps from the source on, where they run, and advice.

    `print` shows it as a table, the last step first, and notebooks as HTML.
    """

    # The explained object: "MapDataset", "DataLoader".
    what: str
    steps: tuple[ExplainedStep, ...]
    # Sentences: what is expensive, why, and what to write instead.
    advice: tuple[str, ...] = ()
    # The error that iterating would raise, if one is known.
    problem: str | None = None

    def __str__(self) -> str:
        lines = [text_table(_HEAD, self._rows(), right=(0, 2))]
        lines += [paragraph(title, printable(text)) for title, text in self._remarks()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON takes."""
        return {
            "what": self.what,
            "steps": [step.to_dict() for step in self.steps],
            "advice": list(self.advice),
            "problem": self.problem,
        }

    def _repr_html_(self) -> str:
        """A table, without any script; all text is escaped."""
        places = [(step.name, step.place or "") for step in self.steps if step.place]
        return piece(
            strip(places[:_MOST_LINES]),
            html_table(_HEAD, self._rows(), right=(0, 2)),
            self._remarks(),
        )

    def _remarks(self) -> list[tuple[str, str]]:
        problem = [] if self.problem is None else [("Does not run", self.problem)]
        return [*problem, *(("Advice", sentence) for sentence in self.advice)]

    def _rows(self) -> list[list[str]]:
        """The rows of a table: the last step first; some cells are numbers."""
        rows = list(_rows(self.steps, ""))
        if len(rows) <= _MOST_LINES:
            return rows
        half = _MOST_LINES // 2
        left_out = number(len(rows) - 2 * half)
        return [*rows[:half], ["", f"… {left_out} more lines: to_dict() has all"], *rows[-half:]]


def _rows(steps: tuple[ExplainedStep, ...], indent: str) -> Iterator[list[str]]:
    for _, group in groupby(reversed(steps), _looks):
        alike = list(group)
        for step in alike if len(alike) <= _ALIKE else alike[:1]:
            name = indent + step.name
            yield [str(step.number), name, step.count, step.runs, step.kind, step.note]
            for part in step.parts:
                yield ["", indent + part.title]
                yield from _rows(part.steps, indent + "  ")
        if len(alike) > _ALIKE:
            yield ["", f"{indent}… and {number(len(alike) - 1)} more like it"]


def _looks(step: ExplainedStep) -> tuple[Any, ...]:
    return step.name, step.kind, step.count, step.runs, step.notes, step.parts
