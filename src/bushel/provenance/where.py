"""`where`: the records that steps are made of."""

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.node import Node, OneByOne, walk
from bushel.core.places import CustomMapNode, ToStreamNode
from bushel.core.positions import Keys, positions_of
from bushel.core.state import State
from bushel.deliver.iterator import StreamIterator
from bushel.errors import PlanError
from bushel.loader.iterator import DataLoaderIterator
from bushel.order.repeat import INFINITE
from bushel.provenance.records import NotKnown, Records, StepRecord, joined, name_of_source
from bushel.provenance.rerun import Replay
from bushel.provenance.subject import Subject, subject_of
from bushel.provenance.walk import length_of, records_of_steps
from bushel.watch import html
from bushel.watch.plain_text import number, plural, size, table

# How an answer was found.
ARITHMETIC = "exact, by arithmetic"
REPLAY = "exact, by replay"
NOT_KNOWN = "not known"

# The most records of a step that are shown: the first ones and the last.
_SHOWN = 8
# The length of an endless dataset, or of a part of one, is at least this.
ENDLESS = INFINITE >> 20


@frozen
class Where:
    """The records of some steps, and how they were found."""

    # The numbers of the steps; None if an iterator does not count them.
    steps: tuple[int | None, ...]
    # ARITHMETIC, REPLAY or NOT_KNOWN; and why it is unknown.
    grade: str
    why: str | None
    # The assumptions of the answer, such as that functions are unchanged.
    notes: tuple[str, ...]
    records: Records
    lanes_of_host: int | None

    @property
    def keys(self) -> Keys:
        """The keys of all records, in the order of the steps and their rows."""
        return self.records.keys

    @property
    def rows(self) -> Keys:
        """The row of each record in its step."""
        return self.records.rows

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[StepRecord]:
        records = self.records
        names = list(map(name_of_source, records.sources))
        facts = zip(
            records.owners.tolist(),
            records.epochs.tolist(),
            records.rows.tolist(),
            records.keys.tolist(),
            records.which.tolist(),
            records.stored_at(),
            records.lanes.tolist(),
            records.made_of(),
            strict=True,
        )
        for owner, epoch, row, key, source, place, lane, origins in facts:
            yield StepRecord(
                step=self.steps[owner],
                epoch=_or_none(epoch),
                row=row,
                key=key,
                source=source,
                source_name=names[source],
                **place._asdict(),
                lane=_or_none(lane),
                host=self._host(lane),
                origins=origins,
            )

    def _host(self, lane: int) -> int | None:
        return lane // self.lanes_of_host if self.lanes_of_host and lane >= 0 else None

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        return {
            "grade": self.grade,
            "why": self.why,
            "notes": list(self.notes),
            "steps": list(self.steps),
            "records": [_as_dict(record) for record in self],
        }

    def __str__(self) -> str:
        lines: list[str] = []
        for step in range(len(self.steps)):
            lines += self._lines_of(step)
        return "\n".join([*lines, *(f"  ({note})" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)

    def _lines_of(self, at: int) -> list[str]:
        head = f"{self._head(at)}   {self.grade}"
        if self.grade == NOT_KNOWN:
            return [f"{head}: {self.why}"]
        mine = self._only(at)
        names, rows, right = mine._table()
        lines = table(names, rows, right).splitlines() if rows else []
        return [head, *(f"  {line}" for line in lines), f"  {mine._sum()}"]

    def _only(self, at: int) -> "Where":
        """The same for one step."""
        records = self.records.of(at)
        whole = Records(records.sources, records.owners - at, *_facts(records)[1:])
        return Where(
            self.steps[at : at + 1],
            self.grade,
            self.why,
            (),
            whole,
            self.lanes_of_host,
        )

    def _head(self, at: int) -> str:
        step = self.steps[at]
        name = "the last step" if step is None else f"step {step:,}"
        records = self.records.of(at)
        epochs, places = records.epochs, records.places
        if not len(records) or (epochs < 0).any():
            return name
        first, last = int(epochs.min()), int(epochs.max())
        text = f"epoch {first:,}" if first == last else f"epochs {first:,} to {last:,}"
        low, high = int(places.min()), int(places.max())
        if first == last and low >= 0 and (np.diff(np.unique(places)) == 1).all():
            several = f"{low:,}..{high:,}" if high > low else f"{low:,}"
            text += f", position{'s' * (high > low)} {several} of its order"
        return f"{name} = {text}"

    def _table(self) -> tuple[list[str], list[list[str]], list[int]]:
        """The columns with content: names, cells, and whether they are numbers."""
        records = list(self)
        several = len(set(self.records.which.tolist())) > 1
        rows = [
            [
                number(record.row),
                number(record.key) if type(record.key) is int else repr(record.key),
                "" if record.record is None else number(record.record),
                _bytes(record),
                "" if record.lane is None else str(record.lane),
                "" if record.host is None else str(record.host),
                record.source_name if several and record.file is None else "",
                record.file or "",
                _made_of(record),
            ]
            for record in (
                records if len(records) <= _SHOWN else [*records[: _SHOWN - 1], records[-1]]
            )
        ]
        used = [place for place, column in enumerate(zip(*rows, strict=True)) if any(column)]
        rows = [[row[place] for place in used] for row in rows]
        if len(records) > _SHOWN:
            rows.insert(_SHOWN - 1, ["..."])
        right = [at for at, place in enumerate(used) if place in _NUMBERS]
        return [_COLUMNS[place] for place in used], rows, right

    def _sum(self) -> str:
        records = list(self)
        text = plural(len(records), "record")
        files = {record.file for record in records if record.file is not None}
        if files:
            text += f" of {plural(len(files), 'file')}"
        sizes = [
            record.stop - record.start
            for record in records
            if record.start is not None and record.stop is not None
        ]
        if sizes and len(sizes) == len(records):
            text += f", {size(sum(sizes))}"
        return text

    def _repr_html_(self) -> str:
        parts: list[Any] = []
        for step in range(len(self.steps)):
            why = f": {self.why}" if self.why else ""
            parts.append([(self._head(step), f"{self.grade}{why}")])
            if self.grade != NOT_KNOWN:
                mine = self._only(step)
                parts += [html.table(*mine._table()), [("in all", mine._sum())]]
        return html.piece(*parts, [("provided", note) for note in self.notes])


_COLUMNS = ("row", "key", "record", "bytes", "lane", "host", "source", "file", "made of")
_NUMBERS = {0, 1, 2, 4, 5}


def _bytes(record: StepRecord) -> str:
    if record.start is None:
        return ""
    if record.stop is None:
        return f"from {number(record.start)}"
    return f"{number(record.start)}..{number(record.stop - 1)}"


def _as_dict(record: StepRecord) -> dict[str, Any]:
    told = record._asdict()
    origins = told.pop("origins")
    if origins is not None:
        told["origins"] = [origin._asdict() for origin in origins]
    return told


def _made_of(record: StepRecord) -> str:
    """The first of the records from which it was made when it was written."""
    if not record.origins:
        return ""
    first, *more = record.origins
    told = f"key {number(first.key)} of {first.source_name}"
    if first.file is not None and first.record is not None:
        told = f"record {number(first.record)} of {first.file}"
    return told + (f" and {len(more)} more" if more else "")


def _facts(records: Records) -> tuple[Any, ...]:
    return (
        records.owners,
        records.rows,
        records.which,
        records.keys,
        records.lanes,
        records.epochs,
        records.places,
    )


def _or_none(number: int) -> int | None:
    return None if number < 0 else number


def where(
    thing: Any,
    step: Any = None,
    *,
    state: Any = None,
    state_step: int = 0,
    hosts: int | None = None,
    replay: bool = False,
) -> Where:
    """Tells which records a step is made of: by key, and by file, record and byte.

    Steps are counted from 0, as a `for` loop over the dataset counts them. Where positions decide
    what is in a step, nothing is read, and any step costs the same. After a filter, a pack, or a
    mixture of streams, the pipeline is run again up to the step, from its beginning or from
    `state`, with elements that know where they come from; what is not needed for that is not read.

    >>> import bushel
    >>> ds = bushel.MapDataset.range(100, 110).shuffle(seed=1).repeat().batch(3)
    >>> bushel.where(ds, step=5)
    step 5 = epoch 1, positions 5..7 of its order   exact, by arithmetic
      row  key
        0    9
        1    3
        2    2
      3 records

    Args:
      thing: a dataset, a `DataLoader`, or an iterator over one. Of an iterator, without `step`,
        the step that it handed out last.
      step: the number of a step, or several as a range, a slice or a list.
      state: a state of the pipeline to run from. Steps are then counted from there, unless
        `state_step` says which step comes after it.
      state_step: the number of the step that comes after `state`.
      hosts: for a pipeline with lanes: the steps of all of so many hosts, and who has what.
      replay: runs the pipeline even where arithmetic would do: a function that returns None
        leaves out an element, which arithmetic does not see.
    """
    if isinstance(thing, (StreamIterator, DataLoaderIterator)) and step is None and state is None:
        return _of_iterator(thing, hosts, replay)
    subject = subject_of(thing, hosts)
    position = None if state is None else subject.position_in(state)
    if step is None:
        if state is None:
            raise TypeError("`where` wants to know which step: `bushel.where(ds, step=100)`.")
        step = state_step
    first = 0 if state is None else whole_step(state_step, "state_step")
    length = length_of(subject.dealt)
    steps = _numbers(step, length if state is None else None)
    if steps and min(steps) < first:
        raise PlanError(
            f"step {min(steps)} comes before the state, after which step {first} comes: there is "
            "no way back from a state. Leave `state` out, or give an earlier one."
        )
    return _answer(subject, steps, tuple(steps), position, first, replay)


def _of_iterator(iterator: Any, hosts: int | None, replay: bool) -> Where:
    subject = subject_of(iterator, hosts)
    inner = iterator._iterator if isinstance(iterator, DataLoaderIterator) else iterator
    before = inner.state_before_last()
    if before is None:
        raise PlanError(
            "this iterator has not delivered a step yet (or not since a state was restored, or it "
            "is closed). Name the step: `bushel.where(ds, step=0)`."
        )
    return _answer(subject, [0], (None,), before, 0, replay)


def _answer(
    subject: Subject,
    steps: Sequence[int],
    shown: tuple[int | None, ...],
    state: State | None,
    first: int,
    replay: bool,
) -> Where:
    """The records of steps, counted so that `first` comes after the state."""
    notes = _notes(subject.dealt)
    grade, why = ARITHMETIC, None
    try:
        with Replay(subject.dealt, believes=not replay) as run:
            before = 0 if state is None else run.index_in(state)
            exact = None
            if not replay and before is not None:
                exact = _by_arithmetic(subject.dealt, [before + step - first for step in steps])
            if before is not None and shown == (None,):
                shown = (before,)
            if exact is None:
                grade = REPLAY
                records = _by_replay(run, steps, state, first)
                notes += () if run.reads else ("no data was read for it",)
            else:
                records = exact
                notes += _may_return_none(subject.dealt)
    except NotKnown as unknown:
        grade, why, records = NOT_KNOWN, str(unknown), joined([])
    return Where(shown, grade, why, notes, records, subject.lanes_of_host)


def answer(subject: Subject, steps: range) -> Where:
    """The records of consecutive steps from the beginning; fewer if the stream ends."""
    node = subject.dealt
    exact = _by_arithmetic(node, steps)
    if exact is not None:
        return Where(tuple(steps), ARITHMETIC, None, (), exact, None)
    try:
        with Replay(node, believes=True) as run:
            run.pass_over(steps.start)
            tags = run.take(len(steps)) if run.step == steps.start else []
            return Where(tuple(steps[: len(tags)]), REPLAY, None, (), run.records(tags), None)
    except NotKnown as unknown:
        return Where((), NOT_KNOWN, str(unknown), (), joined([]), None)


def _by_arithmetic(node: Node, steps: Sequence[int]) -> Records | None:
    try:
        return records_of_steps(node, positions_of(steps))
    except NotKnown:
        return None


def _by_replay(run: Replay, steps: Sequence[int], state: State | None, first: int) -> Records:
    if state is not None:
        run.go_to(state)
    return run.records(_tags(run, [step - first for step in steps], first))


def _tags(run: Replay, steps: Sequence[int], first: int) -> list[Any]:
    """The tags of steps, replayed in order."""
    found: dict[int, Any] = {}
    for step in sorted(set(steps)):
        run.pass_over(step - run.step)
        taken = run.take(1) if run.step == step else []
        if not taken:
            raise _beyond(step + first, run.step + first)
        found[step] = taken[0]
    return [found[step] for step in steps]


def _beyond(step: int, length: int) -> PlanError:
    last = f"the last one is {length - 1:,}" if length else "it is empty"
    return PlanError(
        f"there is no step {step:,}: the dataset has {plural(length, 'step')}, counted from 0; "
        f"{last}."
    )


def whole_step(value: Any, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"`{name}` is the number of a step, counted from 0, and is {value!r}."
        ) from None
    if number < 0:
        raise PlanError(
            f"`{name}` is the number of a step, counted from 0, and cannot be {number}."
        )
    return number


def _numbers(step: Any, length: int | None) -> list[int]:
    """The numbers of the requested steps."""
    if isinstance(step, slice):
        if step.stop is None and (length is None or length >= ENDLESS):
            raise PlanError(f"{step} has no end, and neither has the dataset: say where to stop.")
        last = step.stop if length is None else length
        steps = list(range(*step.indices(last)))
    elif isinstance(step, (range, list, tuple, np.ndarray)):
        steps = [whole_step(number, "step") for number in step]
    else:
        steps = [whole_step(step, "step")]
    if length is not None and steps and max(steps) >= length:
        raise _beyond(max(steps), length)
    return steps


def _notes(node: Node) -> tuple[str, ...]:
    own = {step.label for step in walk(node) if isinstance(step, CustomMapNode)}
    return tuple(
        f"keys are positions in `{name}`, a dataset of your own, which does not tell what it reads"
        for name in sorted(own)
    )


def _may_return_none(node: Node) -> tuple[str, ...]:
    """The assumption of arithmetic: that no function drops elements by returning None."""
    datasets = [step for step in walk(node) if isinstance(step, ToStreamNode)]
    names = dict.fromkeys(
        step.label
        for dataset in datasets
        if not dataset.allow_nones
        for step in walk(dataset.input)
        if isinstance(step, OneByOne) and getattr(step, "function", None) is not None
    )
    if not names:
        return ()
    shown = ", ".join(f"`{name}`" for name in list(names)[:3]) + ", ..." * (len(names) > 3)
    return (f"if {shown} returns None for no element, which would leave it out; replay=True looks",)
