"""Reads a few TFRecord records from an offset on, checked, without an index; their errors."""

from itertools import pairwise

import numpy as np

from bushel.core.positions import Keys
from bushel.errors import RecordError
from bushel.files.local import ByteFile
from bushel.sources.tfrecord.crc import masked_crcs
from bushel.sources.tfrecord.scan import FOOTER, HEADER, headers_are_right, walk

_CHUNK = 1 << 18


def records_from(file: ByteFile, start: int) -> tuple[list[bytes], Keys, RecordError | None]:
    """Reads a few records, up to the first that is wrong.

    With them it returns where they begin, where the last one ends, and if one is wrong, where the
    next one begins: at the end of the file if that is unknown.
    """
    data = file.read(start, min(start + _CHUNK, file.size))
    if len(data) < HEADER:
        return [], np.array([start, file.size]), _cut_short(file, start)
    starts, end = walk(data)
    if end > len(data) and len(starts) > 1:
        starts, end = starts[:-1], int(starts[-1])
    elif end > len(data):
        # A wrong length might request everything there is.
        if not headers_are_right([data])[0]:
            return [], np.array([start, file.size]), _damaged(file, start, "length")
        if start + end > file.size:
            return [], np.array([start, file.size]), _cut_short(file, start)
        data += file.read(start + len(data), start + end)
    bounds = np.append(starts, end)
    places = bounds.tolist()
    whole = [data[a:b] for a, b in pairwise(places)]
    records = [record[HEADER:-FOOTER] for record in whole]
    lengths_right = headers_are_right(whole)
    stored = np.frombuffer(b"".join([record[-FOOTER:] for record in whole]), dtype="<u4")
    right = lengths_right & (masked_crcs(records) == stored)
    bounds += start
    if right.all():
        return records, bounds, None
    wrong = int(right.argmin())
    bounds = bounds[: wrong + 2]
    what = "data"
    if not lengths_right[wrong]:
        what, bounds[-1] = "length", file.size
    return records[:wrong], bounds, _damaged(file, int(bounds[wrong]), what)


def _damaged(file: ByteFile, start: int, what: str) -> RecordError:
    behind = ", and where the next one begins is not known" if what == "length" else ""
    return RecordError(
        f"the record of {file.path!r} that begins at byte {start:,} is damaged: the checksum of "
        f"its {what} is wrong{behind}. Or the file is no TFRecord file."
    )


def _cut_short(file: ByteFile, start: int) -> RecordError:
    return RecordError(
        f"{file.path!r} is cut short: the record that begins at byte {start:,} does not end before "
        f"the file does, at byte {file.size:,}. Was it copied as a whole?"
    )
