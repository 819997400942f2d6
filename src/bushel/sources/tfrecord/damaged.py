"""Finds the intact records of a damaged TFRecord file.

An error in the data of a record is found when it is read. But a wrong length leads to a wrong
place: then the next header is searched for, at every byte, by its checksum. The bytes in between
count as one record, and reading it is an error; so does the end of a truncated file.
"""

import logging

import numpy as np

from bushel.core.positions import Keys
from bushel.errors import RecordError
from bushel.files.index import Columns
from bushel.files.local import ByteFile
from bushel.files.progress_line import ProgressLine
from bushel.sources.tfrecord.crc import masked_crcs_at_every_byte
from bushel.sources.tfrecord.scan import FOOTER, HEADER, headers_are_right, walk

_log = logging.getLogger("bushel")

_CHUNK = 1 << 20
# A file that does not begin with a record may be of another kind: only so many bytes are searched.
_MOST_BEFORE_THE_FIRST = 1 << 24


def scan_damaged(file: ByteFile, progress: ProgressLine, error: RecordError) -> Columns:
    """Finds the readable records of a file; raises the error if there are none."""
    parts: list[Keys] = []
    damaged: list[int] = []
    place = 0
    while place < file.size:
        starts, end = _good(file, place)
        if len(starts):
            parts.append(starts)
        elif end == place:
            limit = file.size if parts else min(file.size, _MOST_BEFORE_THE_FIRST)
            end = _next_header(file, place + 1, limit)
            if not parts and end >= limit:
                raise error
            damaged.append(place)
            parts.append(np.array([place]))
        place = end
        progress.to(place)
    _log.warning(
        "%s Of its %s records, %s cannot be read (the first begins at byte %s): reading one of "
        'them raises an error, and `on_error("skip")` skips them.',
        error,
        f"{sum(map(len, parts)):,}",
        f"{len(damaged):,}",
        f"{damaged[0]:,}" if damaged else "?",
    )
    return {"bounds": np.append(np.concatenate(parts), file.size).astype(np.int64, copy=False)}


def _good(file: ByteFile, place: int) -> tuple[Keys, int]:
    """Records from a place on, up to the first with a wrong length; and their end."""
    data = file.read(place, min(place + _CHUNK, file.size))
    if len(data) < HEADER:
        return np.empty(0, dtype=np.int64), place
    starts, end = walk(data)
    right = headers_are_right([data[start : start + HEADER] for start in starts.tolist()])
    # A wrong length may be larger than a place can be.
    ends = np.append(starts[1:], min(end, file.size + 1))
    right &= ends <= file.size - place
    count = len(right) if right.all() else int(right.argmin())
    return starts[:count] + place, place + (int(ends[count - 1]) if count else 0)


def _next_header(file: ByteFile, place: int, limit: int) -> int:
    """The first byte from here on at which a record seems to begin; or the limit."""
    while place < limit:
        data = file.read(place, min(place + _CHUNK + HEADER, file.size))
        if len(data) < HEADER + FOOTER:
            break
        stored = np.ndarray((len(data) - HEADER + 1,), "<u4", data, 8, (1,))
        for found in np.flatnonzero(masked_crcs_at_every_byte(data) == stored).tolist():
            length = int.from_bytes(data[found : found + 8], "little")
            if place + found + HEADER + length + FOOTER <= file.size:
                return place + found
        place += len(data) - HEADER + 1
    return limit
