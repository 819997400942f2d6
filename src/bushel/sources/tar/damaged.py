"""Finds the intact samples of a damaged tar file.

After a wrong header, the search continues at the next right one. The bytes in between are a hole,
and reading the sample that has it is an error. A hole does not tell its sample: if a sample beside
it lacks files that other samples have, it is that one; otherwise the hole counts as a sample of its
own.
"""

import logging
import tarfile
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from bushel.errors import RecordError
from bushel.files.index import Columns
from bushel.files.local import ByteFile
from bushel.files.progress_line import ProgressLine
from bushel.sources.tar.members import Window, members
from bushel.sources.tar.names import split_name
from bushel.sources.tar.plain_members import BLOCK
from bushel.sources.tar.samples import two_files

_log = logging.getLogger("bushel")

_CHUNK = 1 << 20
# A file that does not begin with a member may be of another kind: only so many bytes are searched.
_MOST_BEFORE_THE_FIRST = 1 << 24


@dataclass
class _Sample:
    """A sample; a hole has no key."""

    start: int
    key: str | None
    endings: set[str] = field(default_factory=set)
    is_damaged: bool = False


def scan_damaged(file: ByteFile, progress: ProgressLine, error: RecordError) -> Columns:
    """Finds the readable members of a file; raises the error if there are none."""
    samples: list[_Sample] = []
    place = last = 0
    while place < file.size:
        window = Window(file.read, file.size, _CHUNK, BLOCK)
        try:
            for begin, _, stop, name in members(window, file.path, place):
                _add(samples, begin, name, file.path)
                place = last = -(-stop // BLOCK) * BLOCK
                progress.to(place)
            break
        except RecordError:
            wrong = _wrong_header(file, place)
            if wrong is None:
                raise  # It is not damaged, but of a kind that cannot be read.
            samples.append(_Sample(wrong, None, is_damaged=True))
            limit = file.size if len(samples) > 1 else min(file.size, _MOST_BEFORE_THE_FIRST)
            place = last = _next_header(file, wrong + BLOCK, limit)
            if len(samples) == 1 and place >= limit:
                raise error from None
    samples = _without_holes(samples)
    damaged = [number for number, sample in enumerate(samples) if sample.is_damaged]
    _log.warning(
        "%s Of its %s samples, %s cannot be read (the first begins at byte %s): reading one of "
        'them raises an error, and `on_error("skip")` skips them.',
        error,
        f"{len(samples):,}",
        f"{len(damaged):,}",
        f"{samples[damaged[0]].start:,}" if damaged else "?",
    )
    starts = [sample.start for sample in samples]
    return {
        "bounds": np.array([*starts, min(last, file.size)], dtype=np.int64),
        "damaged": np.array(damaged, dtype=np.int64),
    }


def _add(samples: list[_Sample], begin: int, name: str, path: str) -> None:
    parts = split_name(name)
    if parts is None:
        return
    key, ending = parts
    if len(samples) > 1 and samples[-1].key is None and samples[-2].key == key:
        samples.pop()
        samples[-1].is_damaged = True  # The hole is within it.
    elif not samples or samples[-1].key != key:
        samples.append(_Sample(begin, key))
    if ending in samples[-1].endings:
        raise two_files(path, len(samples) - 1, name, begin)
    samples[-1].endings.add(ending)


def _without_holes(samples: list[_Sample]) -> list[_Sample]:
    """Assigns holes to their samples, as far as these are known."""
    met = Counter(frozenset(sample.endings) for sample in samples if sample.key is not None)
    usual = met.most_common(1)[0][0] if met else frozenset[str]()
    found: list[_Sample] = []
    behind: int | None = None
    for sample in samples:
        lacks = sample.key is not None and not sample.endings >= usual
        if sample.key is None:
            if found and found[-1].key is not None and not found[-1].endings >= usual:
                found[-1].is_damaged = True
            else:
                found.append(sample)
            behind = sample.start
            continue
        if behind is not None and lacks:
            sample.is_damaged = True
            if found and found[-1].key is None:
                sample.start = found.pop().start
        found.append(sample)
        behind = None
    return found


def _header(file: ByteFile, place: int) -> tarfile.TarInfo | None:
    """The header at a place, if it is right."""
    try:
        block = file.read(place, min(place + BLOCK, file.size))
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return None


def _wrong_header(file: ByteFile, place: int) -> int | None:
    """The first wrong header, before the next file of a sample; None if there is none."""
    first = place
    while True:
        header = _header(file, place)
        if header is None:
            return first
        if place + BLOCK + header.size > file.size:
            return first  # It is right, but its file would end after this one.
        if header.isreg():
            return None
        place += BLOCK + -(-header.size // BLOCK) * BLOCK
        if header.type not in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
            first = place


def _next_header(file: ByteFile, place: int, limit: int) -> int:
    """The first block from here on that is the header of a file; or the limit."""
    while place < limit:
        data = file.read(place, min(place + _CHUNK, file.size))
        count = len(data) // BLOCK
        if not count:
            break
        magic: np.ndarray[tuple[int], np.dtype[np.uint32]] = np.ndarray(
            (count,), "<u4", data, 257, (BLOCK,)
        )
        for block in np.flatnonzero(magic == int.from_bytes(b"usta", "little")).tolist():
            found = place + block * BLOCK
            header = _header(file, found)
            if header is not None and found + BLOCK + header.size <= file.size:
                return found
        place += count * BLOCK
    return limit
