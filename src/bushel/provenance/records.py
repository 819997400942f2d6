"""The records that elements are made from: their sources, and where they are stored."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bushel.core.frozen import frozen, plain
from bushel.core.naming import source_name
from bushel.core.node import Node, Source
from bushel.core.positions import Keys
from bushel.order.interleave import InterleaveNode
from bushel.sources.stored_at import StoredAt, stored_at
from bushel.sources.tfrecord.file_stream import FileStreamNode
from bushel.sources.written.origins import RecordOrigin


class NotKnown(Exception):
    """The answer is unknown; the message says why."""


class StepRecord(NamedTuple):
    """One record of a step."""

    step: int | None
    epoch: int | None
    # Its row in the batch; 0 in a step that is no batch.
    row: int
    # The key in its source; for a stream of a file, the byte at which it starts.
    key: Any
    # The number of its source among those of the pipeline, and the name of that source.
    source: int
    source_name: str
    file: str | None
    record: int | None
    start: int | None
    stop: int | None
    # In a pipeline with lanes: the lane, and the host that owns it.
    lane: int | None
    host: int | None
    # If a pipeline wrote its source: the records from which it was made then.
    origins: tuple[RecordOrigin, ...] | None = None


@plain
class SourceRecords:
    """Records of one source: the element of each, its row there, its key."""

    source: Node
    owners: Keys
    rows: Keys
    # Integers, except with a user's own sampler.
    keys: "np.ndarray[Any, Any]"
    lanes: Keys | None
    # The epoch of each, and its place in the order of that epoch.
    epochs: Keys | None
    places: Keys | None


@frozen
class Records:
    """Records of some elements, ordered by the element and its rows; an array for each fact."""

    sources: tuple[Node, ...]
    owners: Keys
    rows: Keys
    which: Keys
    keys: "np.ndarray[Any, Any]"
    # -1 if unknown.
    lanes: Keys
    epochs: Keys
    places: Keys

    def __len__(self) -> int:
        return len(self.owners)

    def of(self, owner: int) -> "Records":
        """The records of one element."""
        start, stop = self.owners.searchsorted([owner, owner + 1]).tolist()
        some = slice(start, stop)
        facts = (fact[some] for fact in (self.owners, self.rows, self.which, self.keys, self.lanes))
        return Records(self.sources, *facts, self.epochs[some], self.places[some])  # type: ignore[call-arg]

    def stored_at(self) -> list[StoredAt]:
        """The places where the records are stored."""
        found: list[StoredAt] = [StoredAt()] * len(self)
        for number, source in enumerate(self.sources):
            mine = np.flatnonzero(self.which == number)
            places = places_of(source, self.keys.take(mine)) if len(mine) else None
            for index, place in zip(mine.tolist(), places or (), strict=False):
                found[index] = place
        return found

    def made_of(self) -> list[tuple[RecordOrigin, ...] | None]:
        """The records from which they were made when a pipeline wrote them."""
        found: list[tuple[RecordOrigin, ...] | None] = [None] * len(self)
        for number, source in enumerate(self.sources):
            origins_of = getattr(getattr(source, "source", None), "origins_of", None)
            if callable(origins_of):
                for index in np.flatnonzero(self.which == number).tolist():
                    found[index] = origins_of(int(self.keys[index]))
        return found


def inputs_of(step: Node) -> Sequence[Node]:
    """The inputs of a step, including those of an interleave if they are known in advance."""
    return step.listed if isinstance(step, InterleaveNode) else step.inputs


def sources_of(node: Node) -> tuple[Node, ...]:
    """The sources of a pipeline, in the order in which the user wrote them."""
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        step = waiting.pop()
        if isinstance(step, (Source, FileStreamNode)):
            found[id(step)] = step
        else:
            waiting.extend(reversed(inputs_of(step)))
    return tuple(found.values())


def joined(pieces: Sequence[SourceRecords], known: Sequence[Node] = ()) -> Records:
    """The records of all pieces, sorted; sources have the numbers in `known`."""
    sources = (*known, *(piece.source for piece in pieces))
    sources = tuple({id(source): source for source in sources}.values())
    if not pieces:
        nothing = np.empty(0, dtype=np.int64)
        return Records(sources, *[nothing] * 7)
    numbers = {id(source): number for number, source in enumerate(sources)}

    def column(values: Callable[[SourceRecords], Any]) -> "np.ndarray[Any, Any]":
        made = [np.broadcast_to(values(piece), len(piece.owners)) for piece in pieces]
        return made[0] if len(made) == 1 else np.concatenate(made)

    columns = [
        column(lambda piece: piece.owners),
        column(lambda piece: piece.rows),
        column(lambda piece: numbers[id(piece.source)]),
        column(lambda piece: piece.keys),
        column(lambda piece: -1 if piece.lanes is None else piece.lanes),
        column(lambda piece: -1 if piece.epochs is None else piece.epochs),
        column(lambda piece: -1 if piece.places is None else piece.places),
    ]
    if len(pieces) > 1:
        order = np.lexsort((columns[1], columns[0]))
        columns = [values.take(order) for values in columns]
    return Records(sources, *columns)


def places_of(source: Node, keys: "np.ndarray[Any, Any]") -> list[StoredAt] | None:
    """The places where a source stores records; None if it does not tell."""
    if isinstance(source, FileStreamNode):
        return [StoredAt(source.path, None, start) for start in keys.tolist()]
    return stored_at(getattr(source, "source", None), keys)


def name_of_source(source: Node) -> str:
    """The name of a source in an answer."""
    given = getattr(source, "source", None)
    return source.label if given is None else source_name(given)
