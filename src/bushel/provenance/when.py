"""`when`: the steps at which a record is seen."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.node import Node, walk
from bushel.core.places import ToStreamNode
from bushel.errors import PlanError
from bushel.order.sampled import SampledNode
from bushel.order.take import LimitNode
from bushel.provenance.records import NotKnown, name_of_source, sources_of
from bushel.provenance.rerun import Replay
from bushel.provenance.search import Search, steps_of_epoch
from bushel.provenance.subject import subject_of
from bushel.provenance.walk import length_of
from bushel.provenance.where import ARITHMETIC, ENDLESS, NOT_KNOWN, REPLAY, whole_step
from bushel.watch import html
from bushel.watch.plain_text import number, plural

# The number of steps that are shown of an endless dataset.
_SHOWN = 4
# And of the sources of which one is to be chosen.
_NAMED = 20
# Steps that are replayed together.
_AT_ONCE = 256


class Sighting(NamedTuple):
    """One occurrence of a record."""

    epoch: int | None
    step: int
    row: int


@frozen
class When:
    """The steps at which a record is seen, computed on demand."""

    key: Any
    source: str
    # As in `where`. If unknown: the reason, and upper bounds of the steps.
    grade: str
    why: str | None
    notes: tuple[str, ...]
    # The number of steps; None if endless.
    steps: int | None
    search: Search | None
    node: Node
    found: tuple[Sighting, ...] | None = None

    def __iter__(self) -> Iterator[Sighting]:
        """All occurrences in order; of an endless dataset without end."""
        if self.grade == NOT_KNOWN:
            raise PlanError(f"when key {self.key!r} is seen is not known: {self.why}.")
        return self._all()

    def _all(self) -> Iterator[Sighting]:
        if self.found is not None:
            yield from self.found
            return
        if self.search is None:
            return
        stop, epochs = 0, 1
        each = steps_of_epoch(self.node)
        while self.steps is None or stop < self.steps:
            start, stop = stop, epochs * each
            if self.steps is not None:
                stop = min(stop, self.steps)
            hits = self.search.stream(self.node, stop)
            new = np.flatnonzero(hits.places >= start)
            order = np.lexsort((hits.rows.take(new), hits.places.take(new)))
            for index in new.take(order).tolist():
                yield Sighting(
                    int(hits.epochs[index]), int(hits.places[index]), int(hits.rows[index])
                )
            epochs *= 2

    def within(self, ranges: Sequence[tuple[int, int]]) -> "When":
        """The same within some ranges of steps, each without its end."""
        if self.grade == NOT_KNOWN:
            return self
        found = (one for one in self if any(start <= one.step < stop for start, stop in ranges))
        return replace(self, found=tuple(found))

    def first(self, count: int) -> list[Sighting]:
        """The first so many occurrences."""
        return list(islice(self, count))

    @property
    def latest(self) -> list[Sighting]:
        """If steps are unknown: upper bounds of the first few."""
        return list(islice(self._all(), _SHOWN)) if self.grade == NOT_KNOWN else []

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values; of an endless dataset, the beginning."""
        seen, more = self._shown(None)
        return {
            "key": self.key,
            "source": self.source,
            "grade": self.grade,
            "why": self.why,
            "notes": list(self.notes),
            "seen" if self.grade != NOT_KNOWN else "at_the_latest": [s._asdict() for s in seen],
            "more": more,
        }

    def _shown(self, most: int | None) -> tuple[list[Sighting], bool]:
        limit = _SHOWN if self.steps is None or self.grade == NOT_KNOWN else most
        seen = list(islice(self._all(), limit and limit + 1))
        return (seen, False) if limit is None or len(seen) <= limit else (seen[:limit], True)

    def __str__(self) -> str:
        head = f"key {self._key} of {self.source}   {self.grade}"
        if self.grade == NOT_KNOWN:
            head += f": {self.why}"
        seen, more = self._shown(8)
        words = "at the latest, if at all: " if self.grade == NOT_KNOWN else ""
        lines = [f"  {words}{'    '.join(map(_text, seen))}"] if seen else []
        if more:
            end = "endless" if self.steps is None else "and more"
            lines[-1] += f"    ({end}: {len(seen)} shown)"
        if not seen and self.grade != NOT_KNOWN:
            lines.append(f"  at no step{self._of_how_many()}")
        return "\n".join([head, *lines, *(f"  ({note})" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)

    @property
    def _key(self) -> str:
        return number(self.key) if type(self.key) is int else repr(self.key)

    def _of_how_many(self) -> str:
        return "" if self.steps is None else f" of {number(self.steps)}"

    def _repr_html_(self) -> str:
        seen, more = self._shown(100)
        rows = [["" if s.epoch is None else number(s.epoch), *map(number, s[1:])] for s in seen]
        why = f": {self.why}" if self.why else ""
        notes = [("provided", note) for note in self.notes] + [("more", "not shown")] * more
        head = [(f"key {self._key} of {self.source}", f"{self.grade}{why}")]
        return html.piece(head, html.table(["epoch", "step", "row"], rows, [0, 1, 2]), notes)


def _text(seen: Sighting) -> str:
    epoch = "" if seen.epoch is None else f"epoch {number(seen.epoch)}: "
    return f"{epoch}step {number(seen.step)}, row {number(seen.row)}"


def when(
    thing: Any,
    key: Any,
    *,
    source: int | None = None,
    steps: int | None = None,
    hosts: int | None = None,
    replay: bool = False,
) -> When:
    """Tells the steps at which a record is seen, epoch by epoch, and its row in each.

    Orders are run backwards for it: nothing is read, and it takes no longer for a billion
    records than for ten. The answer is found as far as somebody asks: it may be endless.

    >>> import bushel
    >>> ds = bushel.MapDataset.range(100, 110).shuffle(seed=1).repeat().batch(3)
    >>> bushel.when(ds, key=3)
    key 3 of range(100, 110, 1)   exact, by arithmetic
      epoch 0: step 3, row 0    epoch 1: step 5, row 1    ...    (endless: 4 shown)
    >>> bushel.when(ds, key=3).first(2)
    [Sighting(epoch=0, step=3, row=0), Sighting(epoch=1, step=5, row=1)]

    After a filter only running the pipeline tells: then the answer is at which step the record
    comes at the latest, unless `replay` asks to run it.

    Args:
      thing: a dataset, a `DataLoader`, or an iterator over one.
      key: the key of the record in its source, as `where` tells it.
      source: which source is meant where a pipeline has several, as `where` numbers them.
      steps: how many steps are looked at; all of them.
      hosts: for a pipeline with lanes: the steps of all of so many hosts.
      replay: runs the pipeline, from its beginning, where arithmetic does not tell.
    """
    subject = subject_of(thing, hosts)
    node = subject.dealt
    origin = _source(node, source)
    name = name_of_source(origin)
    key = _key(origin, key, name)
    length = length_of(node)
    endless = (length is not None and length >= ENDLESS) or (length is None and _is_endless(node))
    limit = None if endless else length
    if steps is not None:
        steps = whole_step(steps, "steps")
        limit = steps if limit is None else min(limit, steps)
    try:
        search = Search(node, origin, key)
        search.stream(node, 1)
        return When(key, name, ARITHMETIC, None, (), limit, search, node)
    except NotKnown as unknown:
        why = str(unknown)
    if replay:
        if endless and steps is None:
            raise PlanError(
                "the pipeline would be run for ever, as it is endless: say `steps=`, how many are "
                "to be looked at."
            )
        try:
            return _by_replay(node, origin, key, name, limit)
        except NotKnown as unknown:
            return When(key, name, NOT_KNOWN, str(unknown), (), limit, None, node)
    candidates: Search | None = Search(node, origin, key, passes_drops=True)
    try:
        assert candidates is not None
        candidates.stream(node, 1)
    except NotKnown:
        candidates = None
    notes = ("`replay=True` runs the pipeline to find out",)
    limit = length_of(node, passes_drops=True) if limit is None and not endless else limit
    if limit is None and not endless:
        candidates = None
    return When(key, name, NOT_KNOWN, why, notes, limit, candidates, node)


def _by_replay(node: Node, source: Node, key: Any, name: str, limit: int | None) -> When:
    found: list[Sighting] = []
    with Replay(node, believes=True) as run:
        while limit is None or run.step < limit:
            first = run.step
            tags = run.take(_AT_ONCE if limit is None else min(_AT_ONCE, limit - first))
            if not tags:
                break
            records = run.records(tags)
            number_of = {id(each): at for at, each in enumerate(records.sources)}
            mine = (records.which == number_of[id(source)]) & (records.keys == key)
            for index in np.flatnonzero(mine).tolist():
                epoch = int(records.epochs[index])
                step = first + int(records.owners[index])
                found.append(Sighting(None if epoch < 0 else epoch, step, int(records.rows[index])))
        notes = () if run.reads else ("no data was read for it",)
        return When(key, name, REPLAY, None, notes, run.step, None, node, tuple(found))


def _source(node: Node, number_: int | None) -> Node:
    sources = sources_of(node)
    named = [f"{at} is {name_of_source(each)}" for at, each in enumerate(sources[:_NAMED])]
    more = [f"{len(sources) - _NAMED:,} more follow"] if len(sources) > _NAMED else []
    listed = "; ".join(named + more)
    if number_ is None:
        if len(sources) == 1:
            return sources[0]
        if not sources:
            raise PlanError("this pipeline has no source whose records have keys.")
        raise PlanError(
            f"this pipeline has {len(sources)} sources: say which with `source=`. {listed}."
        )
    if not isinstance(number_, int) or not 0 <= number_ < len(sources):
        raise PlanError(
            f"`source` is the number of one of {plural(len(sources), 'source')}, counted from 0, "
            f"and is {number_!r}. {listed}."
        )
    return sources[number_]


def _key(source: Node, key: Any, name: str) -> Any:
    if isinstance(source, SampledNode) and not source.by_block:
        return key  # A key of a user's own sampler.
    try:
        whole = operator.index(key)
    except TypeError:
        raise TypeError(
            f"`key` is the number of a record in {name}, counted from 0, and is {key!r}."
        ) from None
    count = len(source.source) if isinstance(source, SampledNode) else source.length()
    if not 0 <= whole < count:
        raise PlanError(
            f"there is no key {whole:,}: {name} has {plural(count, 'record')}, counted from 0."
        )
    return whole


def _is_endless(node: Node) -> bool:
    """Whether a stream of unknown length may be endless."""
    if any(isinstance(step, LimitNode) for step in walk(node)):
        return False
    for step in walk(node):
        if isinstance(step, ToStreamNode) and step.input.length() >= ENDLESS:
            return True
        if getattr(step, "on_end", None) == "restart":
            return True
        if hasattr(step, "epochs") and step.epochs is None:
            return True
    return False
