"""Finds the slowest blocks of a run, and the first record of each, for the report."""

import operator
from collections.abc import Sequence

from bushel.core.node import Node, walk
from bushel.core.places import ToStreamNode
from bushel.core.positions import positions_of
from bushel.provenance.records import name_of_source, places_of
from bushel.provenance.walk import records_of_positions
from bushel.run.step_total import StepTotal
from bushel.sources.stored_at import StoredAt
from bushel.watch.slow_table import SlowBlock
from bushel.watch.stats import UNWRITTEN

# The most blocks that are listed.
_MOST = 10


def slow_blocks(node: Node | None, totals: Sequence[StepTotal]) -> list[SlowBlock]:
    """The slowest blocks of the steps that are read by position, the slowest first.

    It reads no data and calls no function.
    """
    read_by = _streams_of(node)
    found = [
        (nanoseconds, at, total)
        for total in totals
        if not total.waits_for and id(total.node) in read_by
        for nanoseconds, at in total.slowest
    ]
    found.sort(key=lambda one: -one[0])
    return [
        _block(nanoseconds, at, total, read_by[id(total.node)])
        for nanoseconds, at, total in found[:_MOST]
    ]


def _streams_of(node: Node | None) -> dict[int, ToStreamNode]:
    """The beginning of each stream, by the `id` of its steps that are read by position."""
    streams = [] if node is None else [one for one in walk(node) if isinstance(one, ToStreamNode)]
    return {id(step): stream for stream in streams for step in walk(stream.input)}


def _block(nanoseconds: int, at: int, total: StepTotal, stream: ToStreamNode) -> SlowBlock:
    # Tasks of workers are known by positions of the stream, blocks by positions of the step.
    whose = stream.input if total.where == "workers" else total.node
    seconds = nanoseconds / 1e9
    bare = SlowBlock(total.node.label or UNWRITTEN, total.where, seconds, at)
    try:
        records = records_of_positions(whose, positions_of([at]))
        source, keys = records.sources[int(records.which[0])], records.keys[:1]
        (stored,) = places_of(source, keys) or [StoredAt()]
        file, *numbers = stored
        stored = StoredAt(
            None if file is None else str(file),
            *(None if one is None else operator.index(one) for one in numbers),
        )
        name = name_of_source(source)
    except Exception:
        # Unknown by arithmetic, or a user's own source: a report should not fail because of that.
        return bare
    return bare._replace(source=name, key=keys.tolist()[0], **stored._asdict())
