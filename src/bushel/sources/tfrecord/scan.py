"""Finds the offsets of the records of a TFRecord file, from header to header.

    length (8 bytes)  its checksum (4)  data  the data's checksum (4)

For short records there is a faster way: the upper bytes of lengths are zeros, so numpy searches for
zeros, on all cores. The results are guesses. They are right where one header leads to the next,
from the first one on; elsewhere the scan continues from header to header.
"""

from array import array
from collections.abc import Iterator
from struct import Struct

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys
from bushel.errors import RecordError
from bushel.files.index import Columns
from bushel.files.local import ByteFile
from bushel.files.paths import is_remote
from bushel.files.progress_line import ProgressLine
from bushel.sources.parallel_search import CHUNK, Bytes, highest_bits, in_chunks, places_of
from bushel.sources.tfrecord.crc import masked_crcs

HEADER, FOOTER = 12, 4
_AROUND = HEADER + FOOTER
_LENGTH = Struct("<Q")
# After longer records only headers are read. For remote files, a call costs more.
_CHUNK, _LONG = 1 << 20, 1 << 15
_REMOTE_CHUNK = _REMOTE_LONG = 1 << 23
# The number of neighbours with one length above which more are likely.
_LIKELY, _MANY = 8, 64
# Up to this average length, guessing pays; and lengths have two bytes.
_SHORT, _LONGEST = 1500, 1 << 16
# A wrong guess costs as much as `_WRONG` right ones save. The balance begins with some trust.
_WRONG, _TRUST = 64, 1 << 15
# Guessing reads a part several times, so it should fit into a cache.
_GUESS_CHUNK = CHUNK // 2
_NONE = np.empty(0, dtype=np.int64)


def scan_records(file: ByteFile, progress: ProgressLine) -> Columns:
    """Finds the records of a file: the beginning of each, and the end of the last one."""
    chunk, long = (_REMOTE_CHUNK, _REMOTE_LONG) if is_remote(file.path) else (_CHUNK, _LONG)
    parts: list[Keys] = []
    # For remote files, it would take long to find out that a guess is wrong.
    position, last, guesses = 0, 0, not is_remote(file.path)
    while position < file.size:
        size = HEADER if last > long else chunk
        data = file.read(position, min(position + size, file.size))
        if len(data) < HEADER:
            raise _damaged(file, np.concatenate([*parts, [position]]))
        starts, end = walk(data)
        parts.append(starts + position)
        last = end - int(starts[-1])
        position += end
        if guesses and end < _SHORT * len(starts) and np.ptp(np.diff(starts, append=end)):
            for starts, end in _guessed(file, position):
                parts.append(starts)
                position = end
                progress.to(min(position, file.size))
        guesses = False
        if position > file.size:
            raise _damaged(file, np.concatenate(parts))
        progress.to(position)
    return {"bounds": np.concatenate([*parts, [file.size]]).astype(np.int64, copy=False)}


def _guessed(file: ByteFile, place: int) -> Iterator[tuple[Keys, int]]:
    """Yields the beginnings of records from a place on, and the end of the last of these.

    It ends before the end of the file if that is damaged, or guesses are wrong too often.
    """
    trust = _TRUST
    for stop, (starts, ends) in in_chunks(file, place, _GUESS_CHUNK, _guess):
        # Records that do not lead to the next one.
        breaks = np.append(np.flatnonzero(ends[:-1] != starts[1:]), len(starts) - 1)
        parts: list[Keys] = []
        while place < stop:
            first = int(starts.searchsorted(place))
            if first < len(starts) and starts[first] == place:
                last = int(breaks[breaks.searchsorted(first)])
                parts.append(starts[first : last + 1])
                trust += last + 1 - first
                place = int(ends[last])
                continue
            trust -= _WRONG
            if trust < 0 or place + HEADER > file.size:
                break
            parts.append(np.array([place], dtype=np.int64))
            place += _LENGTH.unpack(file.read(place, place + _LENGTH.size))[0] + _AROUND
        if parts:
            yield np.concatenate(parts), place
        if place < stop or place > file.size:
            return


def _guess(start: int, data: Bytes, spare: npt.NDArray[np.bool_]) -> tuple[Keys, Keys]:
    """Likely beginnings of records in a part of a file, and their ends."""
    if len(data) < _AROUND:
        return _NONE, _NONE
    places = _headers(data, spare)
    lengths = _numbers(data, 1)[places]
    likely = lengths < _LONGEST
    starts = places[likely] + start
    return starts, starts + lengths[likely].view(np.int64) + _AROUND


def _headers(data: Bytes, spare: npt.NDArray[np.bool_]) -> Keys:
    """The places of a possible length of two bytes with six zeros after it."""
    # Six zeros contain the upper three bytes of some word. If they contain those of two words, the
    # first one counts.
    count = len(data) // 4
    zeros = np.less(data[: count * 4].view("<u4"), 256, out=spare[:count])
    words = places_of(np.greater(zeros[1:], zeros[:-1], out=spare[count : 2 * count - 1]), 32) + 1
    # The zeros begin after the last nonzero byte, up to seven bytes before.
    places = highest_bits(_numbers(data, 4)[words - 1]) >> 3
    places += words * 4 - 5
    # A length of one byte has seven zeros after it.
    places += data.take(places + 8, mode="clip") == 0
    return places.clip(0, len(data) - 8)


def _numbers(data: Bytes, step: int) -> npt.NDArray[np.uint64]:
    """The numbers of eight bytes at each place, or at every fourth."""
    return np.ndarray((1 + (len(data) - 8) // step,), "<u8", data, 0, (step,))


def walk(data: bytes) -> tuple[Keys, int]:
    """The beginnings of records in the data, and the end of the last, which may be beyond it."""
    last = len(data) - HEADER
    place = 0
    length_at = _LENGTH.unpack_from
    parts: list[Keys] = []
    while place <= last:
        # Many files have records of one length, which are found all at once.
        first = length_at(data, place)[0]
        run = _run(data, place, first, _LIKELY)
        if run == _LIKELY:
            step = first + _AROUND
            run = _run(data, place, first, (last - place) // step + 1)
            parts.append(np.arange(run, dtype=np.int64) * step + place)
            place += run * step
            if run >= _MANY:
                continue
        starts = array("q")
        add = starts.append
        while place <= last:
            add(place)
            place += length_at(data, place)[0] + _AROUND
        parts.append(np.array(starts, dtype=np.int64))
    return np.concatenate(parts), place


def _run(data: bytes, place: int, length: int, most: int) -> int:
    """The number of consecutive records of this length."""
    step = length + _AROUND
    if place + (most - 1) * step + _LENGTH.size > len(data):
        return 0
    lengths: np.ndarray[tuple[int], np.dtype[np.uint64]] = np.ndarray(
        (most,), "<u8", data, place, (step,)
    )
    same = lengths == length
    return most if same.all() else int(same.argmin())


def _damaged(file: ByteFile, starts: Keys) -> RecordError:
    """The error about a file whose last record does not end within it."""
    whole = starts[starts <= file.size - HEADER]
    for first in range(0, len(whole), 1 << 14):
        some = whole[first : first + (1 << 14)]
        wrong = np.flatnonzero(~headers_are_right(file.read_many(some, some + HEADER)))
        if len(wrong):
            record = first + int(wrong[0])
            return RecordError(
                f"record {record:,} of {file.path!r}, which begins at byte {whole[record]:,}, is "
                "damaged: the checksum of its length is wrong. Or the file is no TFRecord file."
            )
    return RecordError(
        f"{file.path!r} is cut short: record {len(starts) - 1:,}, which begins at byte "
        f"{starts[-1]:,}, does not end before the file does, at byte {file.size:,}. Was it copied "
        "as a whole?"
    )


def headers_are_right(records: list[bytes]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether the checksums of the lengths are right, in data that begin with a header."""
    crcs = masked_crcs([record[: _LENGTH.size] for record in records])
    stored = np.frombuffer(b"".join([record[8:12] for record in records]), dtype="<u4")
    right: np.ndarray[tuple[int], np.dtype[np.bool_]] = crcs == stored
    return right


def begins_with_record(head: bytes) -> bool:
    """Whether these are the first bytes of a TFRecord file."""
    return len(head) >= HEADER and bool(headers_are_right([head])[0])
