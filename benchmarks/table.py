"""Turns outcomes into the one table, and into JSON."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.run import Outcome
from benchmarks.workload import Form, Goal, System, Unit

HEADER = (
    "workload",
    "hand",
    "bushel",
    "grain",
    "torch",
    "bushel/hand",
    "bushel/grain",
    "bushel/torch",
    "goal",
    "reached?",
)
MISSING = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; all figures come from the readings, round by round."""

    title: str
    unit: Unit
    goals: tuple[Goal, ...]
    readings: dict[System, list[float]]
    same_work: bool

    def ratios(self, other: System) -> list[float]:
        """Says how many times as good bushel is as the other, in each round.

        The two were measured seconds apart in each round, so their ratio hardly notices that
        the machine was slower in one round than in another.
        """
        ours, theirs = self.readings.get("bushel", []), self.readings.get(other, [])
        if len(theirs) == 1:
            theirs = theirs * len(ours)
        if self.unit.more_is_better:
            return [a / b for a, b in zip(ours, theirs, strict=False)]
        return [b / a for a, b in zip(ours, theirs, strict=False) if a > 0]

    def reached(self) -> bool | None:
        """Compares with the goals; None where there is nothing to compare, or nothing like it."""
        if not self.same_work:
            return None
        answers = [self.reaches(goal) for goal in self.goals]
        return False if False in answers else None if None in answers else True

    def reaches(self, goal: Goal) -> bool | None:
        if goal.against is None:
            ours = self.readings.get("bushel")
            return median(ours) < goal.limit if ours else None
        ratios = self.ratios(goal.against)
        return median(ratios) >= goal.limit if ratios else None

    def describe_goals(self) -> str:
        return ", ".join(goal.describe(self.unit) for goal in self.goals)

    def cells(self) -> list[str]:
        answer = {True: "yes", False: "NO", None: MISSING if self.same_work else "void"}
        return [
            self.title,
            *(
                figure(self.readings.get(s), self.unit)
                for s in ("hand", "bushel", "grain", "torch")
            ),
            ratio(self.ratios("hand")),
            ratio(self.ratios("grain")),
            ratio(self.ratios("torch")),
            self.describe_goals(),
            answer[self.reached()],
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.title,
            "unit": self.unit.name,
            "readings": self.readings,
            "bushel/hand": self.ratios("hand"),
            "bushel/grain": self.ratios("grain"),
            "bushel/torch": self.ratios("torch"),
            "goal": self.describe_goals(),
            "reached": self.reached(),
            "same work": self.same_work,
        }


def rows(outcome: Outcome) -> list[Row]:
    def row(form: Form) -> Row:
        workload = outcome.workload
        title = f"{workload.title}, {form.title}" if form.title else workload.title
        return Row(
            title, workload.gauge.unit, form.goals, outcome.row(form), not outcome.differences
        )

    return [row(form) for form in outcome.workload.forms]


def figure(readings: list[float] | None, unit: Unit) -> str:
    """Writes the median: 215k/s, 1.28M/s, 4.2 ms."""
    if not readings:
        return MISSING
    value = median(readings)
    if unit.more_is_better:
        for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if value >= scale:
                return f"{three_digits(value / scale)}{letter}{unit.name}"
    return f"{three_digits(value)}{'' if unit.more_is_better else ' '}{unit.name}"


def ratio(ratios: list[float]) -> str:
    """Writes the median, and half the way from the lowest round to the highest."""
    if not ratios:
        return MISSING
    spread = (max(ratios) - min(ratios)) / 2
    return f"{three_digits(median(ratios))} ±{three_digits(spread)}"


def three_digits(value: float) -> str:
    """Writes no more digits than a measurement on a busy machine deserves.

    >>> [three_digits(x) for x in (0.0123, 1.284, 42.19, 8000.0)]
    ['0.01', '1.28', '42.2', '8000']
    """
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def render(table: list[Row]) -> str:
    lines = [list(HEADER), *(row.cells() for row in table)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]

    def write(line: list[str]) -> str:
        first, *others = (
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        return f"| {' | '.join([first, *others])} |"

    rule = f"|{'|'.join('-' * (w + 1) + ('-' if i == 0 else ':') for i, w in enumerate(widths))}|"
    return "\n".join([write(lines[0]), rule, *(write(line) for line in lines[1:])])


def complaints(outcomes: list[Outcome]) -> list[str]:
    """Gives what makes figures void: contenders that failed or did other work."""
    return [
        f"{outcome.workload.name}: {text}"
        for outcome in outcomes
        for text in [
            *(f"{name} failed: {reason}" for name, reason in outcome.failures.items()),
            *(f"NOT THE SAME WORK: {difference}" for difference in outcome.differences),
        ]
    ]
