"""Reads records of a source by key: many in one call or one by one, up to a failure."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from bushel.core.block import Block, Columns, Failure
from bushel.core.frozen import frozen
from bushel.core.naming import source_name
from bushel.core.node import Source, failed
from bushel.core.positions import Keys, Positions
from bushel.errors import SourceError, add_note, note_place, place_noted
from bushel.sources.base import ColumnReader, wrap
from bushel.sources.stored_at import known_place


@frozen
class SequenceNode(Source):
    """Any object with a length and records by key."""

    source: Any
    # Whether it is a `ColumnReader`.
    reads_columns: bool = False
    wraps = True

    @property
    def records(self) -> Any | None:
        together = self.reads_columns or hasattr(self.source, "__getitems__")
        return None if together else self.source

    def length(self) -> int:
        return len(self.source)

    def keys(self, positions: Positions) -> Keys:
        return wrap(positions, len(self.source), self)

    def fetch(self, keys: Keys, positions: Positions) -> Block:
        if self.reads_columns:
            columns = _read_columns(self.source, keys)
            if columns is not None:
                return Block(columns, positions)
        # Our own sources would only turn a list into an array again.
        own = getattr(self.source, "takes_arrays", False) is True
        rows, failure = read_records(self, self.source, keys if own else keys.tolist(), keys)
        return Block(rows, positions[: len(rows)], failure)

    @property
    def at_a_time(self) -> int:
        return int(getattr(self.source, "records_at_a_time", 1))

    @property
    def likeness(self) -> Hashable:
        return SequenceNode, id(self.source), self.reads_columns

    def describe(self) -> str:
        return f"source({source_name(self.source)}, length={len(self.source)})"

    @property
    def label(self) -> str:
        return f"source({source_name(self.source)})"


def read_records(
    node: Source, source: Any, keys: Sequence[Any] | Keys, positions: Positions
) -> tuple[list[Any], Failure | None]:
    """Reads records, up to the first one that fails."""
    read_many = getattr(source, "__getitems__", None)
    rows: list[Any] = []
    whole_block_error: Exception | None = None
    if callable(read_many):
        try:
            rows = list(read_many(keys))
            if len(rows) == len(keys):
                return rows, None
            whole_block_error = SourceError(
                f"{source_name(source)}.__getitems__ was asked for {len(keys)} records and "
                f"returned {len(rows)}."
            )
        except Exception as error:
            whole_block_error = error
        # Record by record, to find the one that fails (or none, if the cause is gone).
        rows = []
    try:
        rows.extend(map(source.__getitem__, keys))
    except Exception as error:
        key = keys[len(rows)]
        key = key.item() if isinstance(key, np.generic) else key
        add_note(error, f"bushel: the source {source_name(source)} failed on key {key}.")
        note_file(error, source, key)
        return rows, failed(error, node, int(positions[len(rows)]))
    if isinstance(whole_block_error, SourceError):
        return [], failed(whole_block_error, node, int(positions[0]))
    if len(rows) < len(keys):
        stopped = RuntimeError(f"{source_name(source)}.__getitem__ raised StopIteration.")
        return rows, failed(stopped, node, int(positions[len(rows)]))
    return rows, None


def note_file(error: BaseException, source: Any, key: Any) -> None:
    """Adds the place of a failed record to its error, if the source knows it."""
    place = known_place(source, key) if place_noted(error) is None else None
    if place is not None:
        note_place(error, *place)


def _read_columns(source: ColumnReader, keys: Keys) -> Columns | None:
    """Reads columns; None if there are none, or if one of the records fails."""
    try:
        tree = source.read_columns(keys)
    except Exception:
        return None  # Reading record by record will find it.
    if tree is None or isinstance(tree, Columns):
        return tree  # These have their own rows.
    return Columns(tree, None, len(keys))
