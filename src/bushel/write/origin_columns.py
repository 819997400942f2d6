"""Where elements come from, as arrays: what a file beside each shard keeps."""

from typing import Any

import numpy as np

from bushel.core.node import Node
from bushel.core.positions import Positions
from bushel.provenance.records import NotKnown, Records, name_of_source, places_of, sources_of
from bushel.provenance.walk import length_of, records_of_positions, records_of_steps
from bushel.sources.written.origins import Numbers

# Positions that are looked up together.
_AT_ONCE = 1 << 16
# Files of a source that a manifest names; of more there is the number.
_MOST_FILES = 4096


def why_unknown(node: Node, is_stream: bool) -> str | None:
    """Why nobody knows where elements come from, if nobody does."""
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


def columns_of(node: Node, positions: Positions, is_stream: bool) -> tuple[dict[str, Numbers], Any]:
    """The columns of elements at these positions, and the files that they name."""
    known = sources_of(node)
    numbers: dict[str, int] = {}
    pieces: list[dict[str, Numbers]] = []
    find = records_of_steps if is_stream else records_of_positions
    before = 0
    for start in range(0, len(positions), _AT_ONCE):
        some = positions[start : start + _AT_ONCE]
        records = find(node, some)
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
    """The file, the number in it and the first byte of each record; -1 where nobody knows."""
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
    """What a manifest says of the sources of a pipeline."""
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
