"""Finds where lines and rows begin, blank ones and newlines in quotes; the error of odd quotes."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys
from bushel.errors import RecordError
from bushel.files.index import Columns
from bushel.files.local import ByteFile
from bushel.files.progress_line import ProgressLine
from bushel.sources.parallel_search import CHUNK, Bytes, in_chunks, places_of

_CHUNK = CHUNK
_NEWLINE, _SPACE = b"\n "
_BOM = b"\xef\xbb\xbf"


class _Found(NamedTuple):
    """The results in a chunk."""

    # The place after each newline.
    starts: Keys
    # Whether the line that begins there may be blank.
    blank: npt.NDArray[np.bool_] | None
    # Whether the number of quotes between the start of the chunk and the newline is odd.
    odd: npt.NDArray[np.bool_] | None
    quotes: int


def scan_lines(
    file: ByteFile,
    progress: ProgressLine,
    is_blank: Callable[[bytes], bool] | None = None,
    quote: int | None = None,
) -> Columns:
    """Finds lines: "bounds" has their starts, and the end of the last one.

    Blank lines, as `is_blank` defines them, belong to the line before them; "skipped" has for each
    the number of lines before it. Newlines between quotes end no line.
    """
    start = len(_BOM) if file.read(0, min(file.size, len(_BOM))) == _BOM else 0
    parts: list[Keys] = [np.array([start], dtype=np.int64)]
    maybe_blank: list[Keys] = [parts[0]]
    inside = False
    search = partial(_search, is_blank is not None, quote)
    for stop, found in in_chunks(file, start, _CHUNK, search):
        keep = slice(None) if found.odd is None else found.odd == inside
        if found.odd is None and inside:
            keep = slice(0)
        parts.append(found.starts[keep])
        if found.blank is not None:
            maybe_blank.append(found.starts[keep][found.blank[keep]])
        inside ^= bool(found.quotes % 2)
        progress.to(stop)
    bounds = np.concatenate(parts)
    if inside:
        begin = int(bounds[bounds < file.size][-1])
        raise RecordError(
            f"{file.path!r} has an odd number of quotes: the row that begins at byte {begin:,} "
            "never ends, or quotes are no quotes in this file; then give `quote=None`."
        )
    if bounds[-1] != file.size:
        bounds = np.append(bounds, file.size)
    if is_blank is None:
        return {"bounds": bounds}
    return _without_blank(file, bounds, np.concatenate(maybe_blank), is_blank)


def _without_blank(
    file: ByteFile, bounds: Keys, maybe: Keys, is_blank: Callable[[bytes], bool]
) -> Columns:
    lines = bounds.searchsorted(maybe[maybe < file.size])
    # A line of only its newline needs no reading. The last one may have no newline.
    ends = bounds[lines + 1]
    empty = (ends - bounds[lines] == 1) & (ends < file.size)
    blank = np.zeros(len(bounds), dtype=bool)
    blank[lines[empty]] = True
    for line in lines[~empty].tolist():
        # The beginning of a long line is nearly always enough.
        begin, end = int(bounds[line]), int(bounds[line + 1])
        head = file.read(begin, min(begin + 64, end))
        blank[line] = is_blank(head) and (end - begin <= 64 or is_blank(file.read(begin, end)))
    numbers = np.flatnonzero(blank)
    if not len(numbers):
        return {"bounds": bounds, "skipped": numbers}
    return {"bounds": bounds[~blank], "skipped": numbers - np.arange(len(numbers))}


def _search(
    blank: bool, quote: int | None, start: int, data: Bytes, spare: npt.NDArray[np.bool_]
) -> _Found:
    starts = places_of(np.equal(data, _NEWLINE, out=spare))
    starts += 1
    maybe: npt.NDArray[np.bool_] | None = None
    if blank:
        # White space, and some other characters that are as rare.
        maybe = data.take(starts, mode="clip") <= _SPACE
        if data[-1] == _NEWLINE:
            maybe[-1] = True  # The byte after the last one is not known here.
    odd, quotes = None, 0
    if quote is not None:
        marks = places_of(np.equal(data, quote, out=spare))
        quotes = len(marks)
        if quotes:
            odd = (marks.searchsorted(starts) & 1).astype(bool)
    starts += start
    return _Found(starts, maybe, odd, quotes)
