"""`covers`: whether each record is seen, and how often."""

from typing import Any

import numpy as np

from bushel.core.frozen import frozen
from bushel.core.node import Each, Fold, Node, Place, Source
from bushel.core.places import ToStreamNode, droppers
from bushel.core.positions import Keys, run_of
from bushel.errors import PlanError
from bushel.order.repeat import RepeatNode
from bushel.order.sampled import SampledNode
from bushel.order.shuffle import ShuffleNode
from bushel.provenance.records import NotKnown, Records, name_of_source, sources_of
from bushel.provenance.rerun import Replay
from bushel.provenance.subject import subject_of
from bushel.provenance.walk import length_of, records_of_steps
from bushel.provenance.where import ARITHMETIC, ENDLESS, NOT_KNOWN, REPLAY, whole_step
from bushel.watch import html
from bushel.watch.plain_text import number, plural

# Steps whose records are counted together, and the most that are counted.
_AT_ONCE = 4096
_MOST_STEPS = 1 << 26
# The most keys that are named.
_NAMED = 5
# More sources are not listed in a text; `to_dict` has all of them.
_MOST_LINES = 40


@frozen
class Covers:
    """How often the records of a pipeline's sources are seen."""

    grade: str
    why: str | None
    # A sentence about each source.
    sentences: tuple[str, ...]
    # For each source, how often each of its records is seen; None if that was proved from the kinds
    # of the steps, without counting.
    counts: tuple[Keys, ...] | None

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        return {"grade": self.grade, "why": self.why, "sources": list(self.sentences)}

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return "\n".join([f"{self.grade}{why}", *(f"  {line}" for line in self._lines())])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        why = f": {self.why}" if self.why else ""
        return html.piece([(f"{self.grade}{why}", line) for line in self._lines() or ("",)])

    def _lines(self) -> tuple[str, ...]:
        if len(self.sentences) <= _MOST_LINES:
            return self.sentences
        more = len(self.sentences) - _MOST_LINES
        return *self.sentences[:_MOST_LINES], f"… and {plural(more, 'source')} more"


def covers(
    thing: Any, *, steps: int | None = None, hosts: int | None = None, replay: bool = False
) -> Covers:
    """Tells whether each record is seen once an epoch, and which ones are not.

    For datasets that are shuffled, repeated and batched, this is proved from the steps, for any
    number of records. For other orders the records are counted, for all steps of the dataset or the
    first `steps`. After a filter, `replay` runs the pipeline and counts.

    >>> import bushel
    >>> ds = bushel.MapDataset.range(10).shuffle(seed=1).batch(4, drop_remainder=True).repeat()
    >>> bushel.covers(ds)
    exact, by arithmetic
      range(0, 10, 1): each of 10 records once an epoch, but 2 are left out, others each epoch
    >>> bushel.covers(bushel.MapDataset.range(10)[::5])
    exact, by arithmetic
      range(0, 10, 1): of 10 records 2 once, 8 never (keys 1, 2, 3, 4, 6, ...)
    """
    subject = subject_of(thing, hosts)
    node = subject.dealt
    if steps is None:
        proved = _proved(node)
        if proved is not None:
            return Covers(ARITHMETIC, None, (proved,), None)
    else:
        steps = whole_step(steps, "steps")
    length = length_of(node)
    if length is not None and steps is not None:
        length = min(length, steps)
    if length is not None and length < ENDLESS:
        try:
            return _counted(node, length)
        except NotKnown:
            pass
    if steps is None and length is not None and length >= ENDLESS:
        raise PlanError(
            "this dataset is endless: say `steps=`, how many of them are to be counted."
        )
    try:
        with Replay(node, believes=True) as run:
            if run.reads and not replay:
                why = (
                    "what functions leave out, or make of elements, decides it; replay=True counts"
                )
                return Covers(NOT_KNOWN, why, (), None)
            return _run(node, run, steps)
    except NotKnown as unknown:
        return Covers(NOT_KNOWN, str(unknown), (), None)


def _proved(node: Node) -> str | None:
    """What the kinds of the steps prove about one source; None if they prove nothing."""
    left_out, repeated, shuffled, folds = 0, False, False, 0
    at_end, is_stream = 0, True
    while not isinstance(node, Source):
        if isinstance(node, ToStreamNode):
            if not node.allow_nones and any(droppers(node.input)):
                return None
            is_stream = False
        elif isinstance(node, Fold):
            inner = length_of(node.input) if is_stream else node.input.length()
            if folds or inner is None or not node.one_per_group:
                return None
            folds += 1
            if node.drops_short_group:
                left_out = inner % node.group_size
        elif isinstance(node, RepeatNode):
            if repeated or not node.reseed_each_epoch:
                return None
            repeated = True
            # Batches continue from one epoch to the next: only the end of the last epoch is left
            # out.
            at_end, left_out = (0 if node.num_epochs is None else left_out), 0
        elif isinstance(node, ShuffleNode):
            shuffled = True
        elif not isinstance(node, (Each, Place)):
            return None
        (node,) = node.inputs
    if isinstance(node, SampledNode):
        return None
    text = f"{name_of_source(node)}: each of {plural(node.length(), 'record')} once an epoch"
    if left_out:
        others = ", others each epoch" if shuffled and repeated else ""
        text += f", but {number(left_out)} {'is' if left_out == 1 else 'are'} left out{others}"
    return text + (f", but for {number(at_end)} at the end of the last one" if at_end else "")


class _KeyCounts:
    def __init__(self, node: Node) -> None:
        self._sources = sources_of(node)
        if any(isinstance(source, SampledNode) for source in self._sources):
            raise NotKnown("the keys of a sampler of your own may be anything")
        self.counts = [np.zeros(source.length(), dtype=np.int64) for source in self._sources]

    def add(self, records: Records) -> None:
        if len(records.sources) > len(self._sources):
            raise NotKnown("sources are made while the pipeline runs")
        for at, counts in enumerate(self.counts):
            mine = records.keys[records.which == at]
            counts += np.bincount(mine, minlength=len(counts))

    def answer(self, grade: str) -> Covers:
        pairs = zip(self._sources, self.counts, strict=True)
        sentences = tuple(f"{name_of_source(source)}: {_said(each)}" for source, each in pairs)
        return Covers(grade, None, sentences, tuple(self.counts))


def _counted(node: Node, length: int) -> Covers:
    if length > _MOST_STEPS:
        raise PlanError(
            f"to count the records of {length:,} steps takes too long: say `steps=`, how many."
        )
    count = _KeyCounts(node)
    for start in range(0, length, _AT_ONCE):
        steps = run_of(start, min(start + _AT_ONCE, length))
        count.add(records_of_steps(node, steps))
    return count.answer(ARITHMETIC)


def _run(node: Node, run: Replay, steps: int | None) -> Covers:
    count = _KeyCounts(node)
    while steps is None or run.step < steps:
        tags = run.take(256 if steps is None else min(256, steps - run.step))
        if not tags:
            break
        count.add(run.records(tags))
    return count.answer(REPLAY)


def _said(counts: Keys) -> str:
    once, never = int((counts == 1).sum()), np.flatnonzero(counts == 0)
    several = np.flatnonzero(counts > 1)
    if once == len(counts):
        return f"each of {plural(once, 'record')} once"
    if len(several) == len(counts) and counts.min() == counts.max():
        return f"each of {plural(len(counts), 'record')} {int(counts[0])} times"
    parts = [f"{number(once)} once"] if once else []
    parts += [f"{number(len(never))} never ({_keys(never)})"] if len(never) else []
    if len(several):
        parts.append(f"{number(len(several))} more often ({_keys(several)})")
    return f"of {plural(len(counts), 'record')} {', '.join(parts)}"


def _keys(keys: Keys) -> str:
    more = ", ..." if len(keys) > _NAMED else ""
    return f"key{'s' * (len(keys) > 1)} {', '.join(map(number, keys[:_NAMED].tolist()))}{more}"
