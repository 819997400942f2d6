"""The page of memory with an iterator's figures: its format, what is left out if too large.

The page is a file without a name. Another process of the same user finds it among the open files of
this process, so the trainer needs no thread, no socket and no file on a disk for it, and can be
inspected while it hangs. There are two slots:

```
sequence number, length, checksum | figures, as JSON     the one that was written last
sequence number, length, checksum | figures, as JSON     and the next one to be written
```

A process that is stopped or killed while it writes one slot leaves the other one intact.

If the user wants a named file instead, as containers do not see each other's processes, the page is
in that file. It outlives the program; while the program runs, it holds a lock on the file.
"""

import fcntl
import json
import math
import os
import stat
import struct
import time
import weakref
import zlib
from collections import deque
from typing import Any

from bushel.errors import FileError

# The name in the links of /proc/PID/fd.
NAME = "bushel-stats"
_HEAD = struct.Struct("<8sQII")
_MAGIC = b"bushel/1"
# Only the pages of the file that were written take memory.
_SLOT_BYTES = 1 << 19
# A reader may meet a slot that is being written; the other one is intact then. That the writer
# overtakes the reader so many times in a row is practically impossible.
_MOST_TRIES = 10

# Bounds of the page's content, which leave space in a slot: a step takes some 300 bytes besides its
# name, and a letter up to four.
_MOST_STEPS, _MOST_NAME, _MOST_TEXTS, _MOST_TEXT = 400, 100, 20, 500

# Seconds between two updates, and the share of time that updates may take: pipelines of thousands
# of steps have many figures.
_EVERY_SECONDS, _MOST_SHARE = 0.5, 0.001
# Seconds that the final figures of short iterators may take, and the share of time by which that
# allowance grows.
_LAST_SECONDS, _LAST_SHARE = 0.002, 0.0005
# In a program of many short iterators, one has a page after so many seconds.
LASTED_SECONDS = 0.2
# The period of "recent" figures.
_RECENT_SECONDS = 10.0


_NOTHING_LATELY = '{"seconds": 0.0, "elements": 0, "wait_seconds": 0.0}'

# The pages that this process has open, for its own views.
_PAGES: "weakref.WeakSet[LivePage]" = weakref.WeakSet()


def own_pages() -> "list[LivePage]":
    """The pages of this process."""
    return list(_PAGES)


class LivePage:
    """The page of one iterator: only its process writes it, and it disappears with the iterator."""

    # The number of pages made by this process.
    _made = 0

    def __init__(self, path: str | None = None) -> None:
        """Raises OSError if such a file is impossible, and FileError for one with a name."""
        descriptor = _nameless() if path is None else _named(path)
        self.has_name = path is not None
        self._descriptor = descriptor
        self._close = weakref.finalize(self, _close, descriptor, os.getpid())
        _PAGES.add(self)
        if path is not None:
            os.ftruncate(descriptor, 2 * _SLOT_BYTES)  # Its size identifies it.
        LivePage._made += 1
        self._number = LivePage._made
        self._written = 0
        # Recent updates: time, elements and wait until then.
        self._recent: deque[tuple[float, int, float]] = deque()

    def put(self, stats: dict[str, Any], is_over: bool, now: float) -> None:
        """Writes figures to the page: those of `Stats.to_dict`, and the `time.monotonic`."""
        recent = self._recent
        recent.append((now, stats["elements"], stats["wait_seconds"]))
        while len(recent) > 2 and now - recent[1][0] >= _RECENT_SECONDS:
            recent.popleft()
        then, elements, wait_seconds = recent[0]
        self.write(
            {
                "pid": os.getpid(),
                "iterator": self._number,
                "monotonic_seconds": now,
                "unix_seconds": time.time(),
                "is_over": is_over,
                "recent": {
                    "seconds": now - then,
                    "elements": stats["elements"] - elements,
                    "wait_seconds": stats["wait_seconds"] - wait_seconds,
                },
                "stats": _bounded(stats),
            }
        )

    def announce(self, nothing: str, now: float) -> None:
        """Writes the page of an iterator that has done nothing yet.

        `nothing` is the `Stats.to_dict` of such an iterator, as JSON: it is the same for all, and a
        program may make many iterators that end soon.
        """
        self._recent.append((now, 0, 0.0))
        self._write(
            f'{{"pid": {os.getpid()}, "iterator": {self._number}, "monotonic_seconds": {now!r}, '
            f'"unix_seconds": {time.time()!r}, "is_over": false, "recent": {_NOTHING_LATELY}, '
            f'"stats": {nothing}}}'.encode()
        )

    def elements_within(self, seconds: float) -> int | None:
        """The elements that the loop takes in so many seconds, at its recent rate, if known."""
        if len(self._recent) < 2:
            return None
        (before, elements, _), (now, more, _) = self._recent[-2], self._recent[-1]
        taken = more - elements
        return max(1, int(taken * seconds / max(1e-9, now - before))) if taken else None

    def read(self) -> bytes | None:
        """The figures written last, for any thread; None if the page was closed."""
        try:
            return read_page(self._descriptor) if self._close.alive else None
        except OSError:
            return None  # It was closed just now.

    def write(self, values: dict[str, Any]) -> None:
        """Writes plain values."""
        self._write(json.dumps(values, ensure_ascii=False).encode(errors="replace"))

    def _write(self, data: bytes) -> None:
        if len(data) > _SLOT_BYTES - _HEAD.size:
            raise OSError(f"the figures are {len(data):,} bytes, too many for their page")
        self._written += 1
        head = _HEAD.pack(_MAGIC, self._written, len(data), zlib.crc32(data))
        os.pwrite(self._descriptor, head + data, self._written % 2 * _SLOT_BYTES)

    def close(self) -> None:
        """Closes the page; may be called again."""
        self._close()


def seconds_until_next(spent: float) -> float:
    """Seconds until the next update, given how long the last one took."""
    return max(_EVERY_SECONDS, spent / _MOST_SHARE)


class LastFigures:
    """Limits the time for final figures in a program of many short iterators.

    Above the limit, the page of an iterator is dropped at the end of its data, and made only after
    the iterator has lasted for a while.

    >>> last = LastFigures()
    >>> last.are_too_many(now=0.0), last.took(0.0022)
    (False, None)
    >>> last.are_too_many(now=0.1), last.are_too_many(now=1.0)
    (True, False)
    """

    def __init__(self) -> None:
        self._seconds = _LAST_SECONDS
        self._at = math.inf

    def are_too_many(self, now: float) -> bool:
        """Whether there have been so many lately that none are written now."""
        more = _LAST_SHARE * max(0.0, now - self._at)
        self._seconds, self._at = min(self._seconds + more, _LAST_SECONDS), now
        return self._seconds <= 0.0

    def took(self, seconds: float) -> None:
        """Takes note of the time that final figures took."""
        self._seconds -= seconds


# The limit of this program.
LAST_FIGURES = LastFigures()


def _close(descriptor: int, process: int) -> None:
    # In a forked child, another file may have that number.
    if process == os.getpid():
        os.close(descriptor)


def _bounded(stats: dict[str, Any]) -> dict[str, Any]:
    """The figures with as many steps as fit, the slowest ones, and with shortened texts."""
    steps = stats["steps"] or []
    if len(steps) > _MOST_STEPS:
        longest = sorted(steps, key=lambda step: -step["seconds"])
        least = longest[_MOST_STEPS - 1]["seconds"]
        steps = [step for step in steps if step["seconds"] >= least][:_MOST_STEPS]
    return {
        **stats,
        "steps": [{**step, "name": step["name"][:_MOST_NAME]} for step in steps],
        "threads": [text[:_MOST_TEXT] for text in stats["threads"][:_MOST_TEXTS]],
        "workers": [
            {**pool, "changes": [_short(change) for change in pool["changes"][-_MOST_TEXTS:]]}
            for pool in stats["workers"][:_MOST_TEXTS]
        ],
        "why_slow": [text[:_MOST_TEXT] for text in stats["why_slow"][:_MOST_TEXTS]],
    }


def _nameless() -> int:
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no files in memory that other processes can find")
    descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _named(path: str) -> int:
    """Opens a file for a page: a new one, or one of a program that has ended."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise FileError(
            f"the statistics cannot be written to {path!r}: {error.strerror}. `stats=` is the "
            "path of a new file, in an existing folder."
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        is_file = stat.S_ISREG(status.st_mode)
        if not is_file or (status.st_size and not _is_page(descriptor)):
            raise FileError(
                f"{path!r} exists and is no file of statistics: `stats=` is the path of a new file."
            )
        os.ftruncate(descriptor, 0)
    except BlockingIOError:
        os.close(descriptor)
        raise FileError(
            f"another iterator is writing its statistics to {path!r}: give each its own file."
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_page(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    heads = (os.pread(descriptor, len(_MAGIC), slot * _SLOT_BYTES) for slot in (0, 1))
    return size == 2 * _SLOT_BYTES and all(head in (_MAGIC, bytes(len(_MAGIC))) for head in heads)


def _short(change: dict[str, Any]) -> dict[str, Any]:
    return {**change, "why": change["why"][:_MOST_TEXT]}


def read_page(descriptor: int) -> bytes | None:
    """The bytes written last to a page; None if no slot is intact."""
    for _ in range(_MOST_TRIES):
        found = [slot for slot in (_slot(descriptor, 0), _slot(descriptor, 1)) if slot is not None]
        if found:
            return max(found)[1]
    return None


def _slot(descriptor: int, number: int) -> tuple[int, bytes] | None:
    # Read, not mapped: another process may truncate the file, and an access to a mapping would
    # crash then.
    head = os.pread(descriptor, _HEAD.size, number * _SLOT_BYTES)
    if len(head) < _HEAD.size:
        return None
    magic, written, length, checksum = _HEAD.unpack(head)
    if magic != _MAGIC or length > _SLOT_BYTES - _HEAD.size:
        return None
    data = os.pread(descriptor, length, number * _SLOT_BYTES + _HEAD.size)
    return (written, data) if zlib.crc32(data) == checksum else None
