"""Where the records of a file begin: looked up once, and kept.

An index lies beside its file, or in a cache folder where that cannot be written. It says of
which file it is (size and time of change), and is made again when the file is another.

    BUSHELIX  length of the header  header (JSON)  columns of 64-bit integers

A kept index is mapped, not read: to open it takes no time however long it is, and processes
share its memory. So nobody has looked at all its numbers, and whoever uses them checks those
that they use.
"""

import json
import logging
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.files.limits import refusal
from bushel.files.local import ByteFile
from bushel.files.paths import is_remote
from bushel.files.progress import Progress
from bushel.files.whole import alone, written_whole

Columns: TypeAlias = dict[str, npt.NDArray[np.int64]]
# Goes through a file and returns the columns of its index; tells the progress where it is.
Scan: TypeAlias = Callable[[ByteFile, Progress], Columns]

_log = logging.getLogger("bushel")

_MAGIC = b"BUSHELIX"
_VERSION = 1
_ENDING = ".bushel-index"
_MOST_HEADER = 1 << 20
# A process has only so many maps, and sources have files by the thousand.
_WORTH_A_MAP = 1 << 16


def index_of(file: ByteFile, kind: str, names: Sequence[str], scan: Scan) -> Columns:
    """The index of a file: the one that is kept, if it is of this file, or a new one.

    `kind` says what was looked for, with everything that the answer depends on.
    """
    places = places_of_index(file.path, kind)
    for place in places:
        kept = _read(place, file, kind, names)
        if kept is not None:
            return kept
    with _alone(places[-1]):
        # Somebody else may have made it while we waited.
        for place in places:
            kept = _read(place, file, kind, names)
            if kept is not None:
                return kept
        with Progress(f"indexing {os.path.basename(file.path)}", file.size) as progress:
            columns = scan(file, progress)
        for place in places:
            refused = _write(place, file, kind, columns)
            if refused is None:
                # The memory of the map is everybody's.
                return _read(place, file, kind, names) or columns
    _log.warning(
        "the index of %r is not kept, and made again each time: %s. BUSHEL_CACHE names another "
        "folder for it.", file.path, refused,
    )  # fmt: skip
    return columns


def cache_folder() -> str:
    """Where bushel keeps what it can make again."""
    chosen = os.environ.get("BUSHEL_CACHE")
    if chosen:
        return chosen
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "bushel")


def places_of_index(path: str, kind: str) -> list[str]:
    """Where an index may be, the best place first; the last one is always ours to write."""

    import hashlib  # It loads a library of cryptography.

    name = hashlib.sha256(
        f"{os.path.abspath(path) if not is_remote(path) else path}\n{kind}".encode(
            "utf-8", "surrogateescape"
        )
    )
    cached = os.path.join(cache_folder(), "index", name.hexdigest() + _ENDING)
    if is_remote(path):
        return [cached]
    folder, base = os.path.split(path)
    short = kind.split("(")[0]
    return [os.path.join(folder, f".{base}.{short}{_ENDING}"), cached]


def _header(file: ByteFile, kind: str, columns: Columns) -> dict[str, Any]:
    counts = {name: len(column) for name, column in columns.items()}
    return {"version": _VERSION, "kind": kind, "of": file.stamp, "columns": counts}


def _read(place: str, file: ByteFile, kind: str, names: Sequence[str]) -> Columns | None:
    """Reads an index; None where there is none that can be trusted."""
    try:
        with open(place, "rb") as stored:
            data: bytes | mmap.mmap
            if os.fstat(stored.fileno()).st_size < _WORTH_A_MAP:
                data = stored.read()
            else:
                data = mmap.mmap(stored.fileno(), 0, access=mmap.ACCESS_READ)
        if data[: len(_MAGIC)] != _MAGIC:
            return None
        (length,) = struct.unpack_from("<Q", data, len(_MAGIC))
        if length > min(_MOST_HEADER, len(data)):
            return None
        offset = len(_MAGIC) + 8 + length
        header = json.loads(data[len(_MAGIC) + 8 : offset])
        counts = header["columns"]
        expected = {"version": _VERSION, "kind": kind, "of": file.stamp}
        if {name: header[name] for name in expected} != expected or list(counts) != list(names):
            return None
        if not all(type(counts[name]) is int and counts[name] >= 0 for name in names):
            return None
        if offset + 8 * sum(counts.values()) != len(data):
            return None
        columns: Columns = {}
        for name in names:
            column = np.frombuffer(data, dtype="<i8", count=counts[name], offset=offset)
            columns[name] = np.require(column, np.int64, "A")
            offset += 8 * counts[name]
    except (OSError, ValueError, LookupError, TypeError, RecursionError, struct.error):
        return None
    # Columns rise, so these are the least and the greatest, unless it is damaged in between.
    if any(
        len(column) and not 0 <= column[0] <= column[-1] <= file.size for column in columns.values()
    ):
        return None
    return columns


def _write(place: str, file: ByteFile, kind: str, columns: Columns) -> str | None:
    """Keeps an index; it is there as a whole or not at all, and then it says why not."""

    folder = os.path.dirname(place)
    header = json.dumps(_header(file, kind, columns)).encode()
    header += b" " * (-len(header) % 8)  # Numbers lie at multiples of eight, or are slow.
    try:
        os.makedirs(folder or ".", exist_ok=True)
        # One that a crash left without its contents is no index, and made again.
        with written_whole(place, lasting=False) as out:
            out.write(_MAGIC + struct.pack("<Q", len(header)) + header)
            for column in columns.values():
                out.write(np.ascontiguousarray(column, dtype="<i8").data)
    except OSError as error:
        return refusal(error, place)
    return None


@contextmanager
def _alone(place: str) -> Iterator[None]:
    """Lets one process at a time make an index; the others wait and then find it."""
    with suppress(OSError):
        os.makedirs(os.path.dirname(place), exist_ok=True)
    with alone(place + ".lock"):
        yield
