"""Writes the origins of elements to a file beside each shard."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bushel.checkpoint.signed import describe_pipeline, verify
from bushel.core.node import Node
from bushel.core.positions import Positions
from bushel.provenance.records import NotKnown, Records, name_of_source, places_of, sources_of
from bushel.provenance.rerun import Replay
from bushel.provenance.walk import length_of, records_of_positions, records_of_steps
from bushel.sources.written.origins import Numbers

# Positions that are looked up together.
_AT_ONCE = 1 << 16
# The most files of a source that a manifest names; of more it has the number.
_MOST_FILES = 4096


def why_unknown(node: Node, is_stream: bool) -> str | None:
    """Why the origins of elements are unknown, if they are."""
    try:
        first = np.zeros(1, dtype=np.int64)
        records = records_of_steps(node, first) if is_stream else records_of_positions(node, first)
        if records.keys.dtype.kind not in "iu":
            raise NotKnown("keys are no numbers")
        if is_stream and length_of(node) is None:
            raise NotKnown("how many elements there are is only known by reading them")
    except NotKnown as unknown:
        return str(unknown)
    return None


class TracedOrigins:
    """Origins that arithmetic cannot find: a second stream with tagged elements runs beside.

    Functions that decide which elements there are, such as filters, are called a second time for
    that.
    """

    def __init__(self, node: Node, state: Any, calls: bool) -> None:
        """From the beginning, or from a state on.

        With `calls`, functions of the user's may be called; otherwise none is assumed to drop an
        element, and `NotKnown` is raised if that is not enough.
        """
        self._replay = Replay(node, believes=not calls)
        if self._replay.reads and not calls:
            self._replay.close()
            raise NotKnown("functions of the pipeline decide which elements there are")
        if state is not None:
            self._replay.go_to(verify(state, describe_pipeline(node)))

    def records(self, positions: Positions) -> Records:
        """The records of the next elements, one for each position."""
        tags = self._replay.take(len(positions))
        records = self._replay.records(tags)
        if len(tags) < len(positions) or records.keys.dtype.kind not in "iu":
            raise NotKnown("the second run gave another stream, or keys are not numbers")
        return records

    @property
    def ended(self) -> bool:
        """Whether the stream has ended; asked once, at the end."""
        return not self._replay.take(1)

    def close(self) -> None:
        self._replay.close()


def can_be_traced(node: Node, calls: bool) -> bool:
    """Whether a second stream can find the origins of a stream's elements."""
    try:
        TracedOrigins(node, None, calls).close()
    except NotKnown:
        return False
    return True


def columns_of(
    node: Node,
    positions: Positions,
    is_stream: bool,
    find: Callable[[Positions], Records] | None = None,
) -> tuple[dict[str, Numbers], Any]:
    """The columns of elements at these positions, and the files that they name.

    `find` returns the records of positions if arithmetic cannot.
    """
    known = sources_of(node)
    numbers: dict[str, int] = {}
    pieces: list[dict[str, Numbers]] = []
    if find is None:
        find = partial(records_of_steps if is_stream else records_of_positions, node)
    before = 0
    for start in range(0, len(positions), _AT_ONCE):
        some = positions[start : start + _AT_ONCE]
        records = find(some)
        counts = np.bincount(records.owners, minlength=len(some))
        ends = before + counts.cumsum()
        before += len(records)
        pieces.append({"ends": ends, "sources": records.which, "keys": records.keys})
        pieces[-1] |= _places(records, numbers)
    columns = {
        name: np.concatenate([piece[name] for piece in pieces]).astype(np.int64)
        for name in (pieces[0] if pieces else ())
    }
    if not columns:
        return {}, []
    if (columns["ends"] == np.arange(1, len(positions) + 1)).all():
        del columns["ends"]  # One each.
    if len(known) == 1:
        del columns["sources"]
    for name in ("files", "records", "starts"):
        if (columns[name] == -1).all():
            del columns[name]
    return columns, list(numbers)


def _places(records: Records, numbers: dict[str, int]) -> dict[str, Numbers]:
    """The file, the number in it and the first byte of each record; -1 if unknown."""
    found = {name: np.full(len(records), -1, np.int64) for name in ("files", "records", "starts")}
    for number, source in enumerate(records.sources):
        mine = np.flatnonzero(records.which == number)
        places = places_of(source, records.keys.take(mine)) if len(mine) else None
        if not places:
            continue
        files, inside, starts, _ = zip(*places, strict=True)
        found["files"][mine] = [
            -1 if file is None else numbers.setdefault(file, len(numbers)) for file in files
        ]
        found["records"][mine] = [-1 if record is None else record for record in inside]
        found["starts"][mine] = [-1 if start is None else start for start in starts]
    return found


def sources_told(node: Node) -> list[dict[str, Any]]:
    """The description of a pipeline's sources in a manifest."""
    told = []
    for source in sources_of(node):
        given = getattr(source, "source", None)
        about: dict[str, Any] = {"name": name_of_source(source), "step": source.label}
        paths = getattr(given, "paths", None)
        if isinstance(paths, (list, tuple)) and all(isinstance(path, str) for path in paths):
            files = list(dict.fromkeys(paths))
            about["files"] = files[:_MOST_FILES]
            if len(files) > _MOST_FILES:
                about["number_of_files"] = len(files)
        told.append(about)
    return told
