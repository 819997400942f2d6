"""`diff`: the difference between two pipelines, and whether their records differ."""

from typing import Any

import numpy as np

from bushel.checkpoint.differences import differing_steps
from bushel.checkpoint.signed import describe_pipeline
from bushel.core.frozen import frozen
from bushel.errors import PlanError
from bushel.provenance.records import Records, name_of_source
from bushel.provenance.subject import Subject, subject_of
from bushel.provenance.walk import length_of
from bushel.provenance.where import NOT_KNOWN, Where, answer, whole_step
from bushel.watch import html
from bushel.watch.plain_text import number, plural

# Steps that are compared together at first; then more and more, as each replay begins anew.
_AT_ONCE = 256


@frozen
class Diff:
    """The differences between two pipelines."""

    # The steps that differ, in words; empty if none do.
    steps: str
    # Whether the compared records are the same ones in the same order, whatever the batches; None
    # if unknown. And the first steps at which they differ, in each pipeline.
    same_records: bool | None
    first_steps: tuple[int, int] | None
    # The number of compared records, and records per step of each pipeline, if constant.
    compared: int
    sizes: tuple[int | None, int | None]
    grade: str
    why: str | None

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        return {name: getattr(self, name) for name in Diff.__dataclass_fields__}

    def __str__(self) -> str:
        parts = [self.steps or "the steps are the same"]
        if self.same_records is None:
            parts.append(f"whether the records are is not known: {self.why}")
        elif self.same_records:
            parts.append("records are the same, in the same order" + self._mapping())
        else:
            assert self.first_steps is not None
            old, new = self.first_steps
            both = f"step {number(old)}" if old == new else f"steps {number(old)} and {number(new)}"
            parts.append(f"records differ, from {both} on")
        return f"{'; '.join(parts)}   ({plural(self.compared, 'record')} compared; {self.grade})"

    def _mapping(self) -> str:
        old, new = self.sizes
        if old is None or new is None or old == new:
            return ""
        for several, one, verb in ((new, old, "was"), (old, new, "became")):
            if several % one == 0:
                times = several // one
                return f"; step k {verb} steps {times}k to {times}k + {times - 1}"
        return f"; row r of step k was record k * {old} + r, and is k * {new} + r now"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html.piece([("diff", str(self))])


def diff(old: Any, new: Any, *, records: int = 1 << 16) -> Diff:
    """Finds the differences between two pipelines, and the step from which on their records differ.

    >>> import bushel
    >>> ds = bushel.MapDataset.range(1000).shuffle(seed=1)
    >>> bushel.diff(ds.batch(4), ds.batch(8))
    step 3 was `batch(4)` and is `batch(8)` now; records are the same, in the same order; step k
    was steps 2k to 2k + 1   (1,000 records compared; exact, by arithmetic)

    Args:
      old: a dataset or a `DataLoader`.
      new: another one.
      records: how many records are compared, from the beginning; fewer where one ends.
    """
    limit = whole_step(records, "records")
    if not limit:
        raise PlanError("`records` is how many records are compared, and 0 of them tell nothing.")
    first, second = subject_of(old), subject_of(new)
    before, now = (describe_pipeline(side.described, in_full=True) for side in (first, second))
    words = differing_steps(before, now)
    left, right = _Side(first), _Side(second)
    compared = 0
    while compared < limit:
        left.fill()
        right.fill()
        for side in (left, right):
            if side.unknown is not None:
                return Diff(words, None, None, compared, (None, None), NOT_KNOWN, side.unknown)
        count = min(len(left.records), len(right.records), limit - compared)
        if not count:
            break
        for index in range(count):
            if left.records[index] != right.records[index]:
                at = left.step_of[index], right.step_of[index]
                sizes = left.size, right.size
                return Diff(words, False, at, compared + index, sizes, _grade(left, right), None)
        left.take(count)
        right.take(count)
        compared += count
    # If one ends before the other, its records differ from there on.
    if compared < limit and (left.records or right.records):
        at = left.next_step, right.next_step
        return Diff(words, False, at, compared, (left.size, right.size), _grade(left, right), None)
    return Diff(words, True, None, compared, (left.size, right.size), _grade(left, right), None)


class _Side:
    """The records of one pipeline, one after the other."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._length = subject, length_of(subject.dealt)
        self._next, self._at_once = 0, _AT_ONCE
        self.records: list[Any] = []
        self.step_of: list[int] = []
        self.size: int | None = None
        self.unknown: str | None = None
        self.grade = ""

    @property
    def next_step(self) -> int:
        return self.step_of[0] if self.step_of else self._next

    def fill(self) -> None:
        """Gets more records, if there are none left."""
        if self.records or self._next == self._length:
            return
        stop, self._at_once = self._next + self._at_once, 4 * self._at_once
        stop = stop if self._length is None else min(stop, self._length)
        found = answer(self._subject, range(self._next, stop))
        self.grade, self.unknown = found.grade, found.why
        if self.unknown is not None:
            return
        steps = [step for step in found.steps if step is not None]
        if self._length is None and len(steps) < stop - self._next:
            self._length = self._next + len(steps)
        self._note_size(found, steps)
        self.records = _identities(found.records)
        self.step_of = (found.records.owners + self._next).tolist()
        self._next += len(steps)

    def _note_size(self, found: Where, steps: list[int]) -> None:
        if self._next == 0 and steps:
            self.size = int(np.bincount(found.records.owners, minlength=1)[0])

    def take(self, count: int) -> None:
        self.records, self.step_of = self.records[count:], self.step_of[count:]


def _identities(records: Records) -> list[Any]:
    names = list(map(name_of_source, records.sources))
    pairs = zip(records.which.tolist(), records.keys.tolist(), strict=True)
    return [(names[source], key) for source, key in pairs]


def _grade(left: _Side, right: _Side) -> str:
    return max(left.grade, right.grade)  # "exact, by replay" comes after "by arithmetic".
