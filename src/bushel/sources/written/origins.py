"""The origins of a shard's records: columns of numbers in a file beside it.

ends     how many origins the records up to each have together; empty where each has one
sources  which source of the pipeline, where there are several
keys     the key there
files    which file, by its number in the list of them; -1 where it is not known
records  the number in that file
starts   the byte at which it begins; -1 where it is not known
lengths  for token files: how many tokens each record has
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bushel.errors import FileError
from bushel.files.container import DamagedError, ForeignError
from bushel.files.numbers import read_numbers, write_numbers

COLUMNS = ("ends", "sources", "keys", "files", "records", "starts", "lengths")
Numbers = npt.NDArray[np.int64]
NONE: Numbers = np.empty(0, dtype=np.int64)


class RecordOrigin(NamedTuple):
    """A record of a source from which a written record was made."""

    # The number of the source among those of the written pipeline, and its name.
    source: int
    source_name: str
    key: int
    file: str | None
    record: int | None
    start: int | None


class OriginColumns(NamedTuple):
    """The origins of the records of one shard, as far as known."""

    columns: Mapping[str, Any]
    files: Sequence[str]

    def of(self, record: int, names: Sequence[str]) -> tuple[RecordOrigin, ...]:
        """The origins of a record, by its number in the shard."""
        ends, keys = self.columns["ends"], self.columns["keys"]
        start, stop = record, record + 1
        if len(ends):
            start, stop = int(ends[record - 1]) if record else 0, int(ends[record])
        if not len(keys):
            return ()
        return tuple(self._origin(number, names) for number in range(start, stop))

    def _origin(self, number: int, names: Sequence[str]) -> RecordOrigin:
        def at(name: str, default: int) -> int:
            column = self.columns[name]
            return int(column[number]) if len(column) else default

        source, file, start = at("sources", 0), at("files", -1), at("starts", -1)
        known = 0 <= file < len(self.files)
        return RecordOrigin(
            source,
            names[source] if 0 <= source < len(names) else "",
            at("keys", 0),
            self.files[file] if known else None,
            at("records", -1) if known else None,
            start if known and start >= 0 else None,
        )


def write_origins(
    write: Callable[[Any], object], columns: Mapping[str, Numbers], files: Sequence[str]
) -> None:
    """Writes the columns of a shard."""
    whole = {name: columns.get(name, NONE) for name in COLUMNS}
    write_numbers(write, {"files": list(files)}, whole)


def read_origins(path: str, expected: int) -> OriginColumns:
    """Reads the columns of a shard that has `records` records."""

    def renew(name: str, error: DamagedError) -> Any:
        raise FileError(f"{path!r} is damaged {error}. Copy it anew.")

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        footer, columns = read_numbers(descriptor, COLUMNS, renew)
    except (ForeignError, DamagedError) as error:
        raise FileError(f"{path!r} is damaged ({error}). Copy it anew.") from None
    finally:
        os.close(descriptor)
    files = footer.get("files")
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise FileError(f"{path!r} is damaged: it names no files. Copy it anew.")
    origins = len(columns["keys"])
    if len(columns["ends"]):
        ends = np.asarray(columns["ends"])
        well = len(ends) == expected and not (np.diff(ends, prepend=0) < 0).any()
        well = well and ends[-1] == origins
    else:
        well = origins in (0, expected)
    for name in ("sources", "files", "records", "starts"):
        well = well and len(columns[name]) in (0, origins)
    if not well or len(columns["lengths"]) not in (0, expected):
        raise FileError(f"{path!r} is damaged: it is of another shard. Copy it anew.")
    return OriginColumns(columns, files)
