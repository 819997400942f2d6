"""The file of `cache(path)`: its format, whose pipeline it belongs to; one writes, any number read.

The file has pieces (`files/container.py`), each a block of elements: three lengths, then a
description of elements, their bytes, and the states after them, compressed. The footer names the
pipeline, and has the state at the beginning.

It is written under another name, and locked: a process that finds the lock taken does not write. A
writer that is killed leaves that other file, and the next writer begins it anew.
"""

import json
import os
import struct
import weakref
import zlib
from bisect import bisect_right
from contextlib import suppress
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from bushel.checkpoint.differences import differing_steps
from bushel.core.frozen import plain
from bushel.errors import BatchError, FileError, PlanError
from bushel.files.container import DamagedError, ForeignError, PieceReader, PieceWriter
from bushel.files.elements import HOLDS, Encoder, UnheldError, decode
from bushel.files.local import LocalFile
from bushel.files.private import open_ours
from bushel.files.whole import lock_now, rename

_LENGTHS = struct.Struct("<QQQ")
# The approximate size of a block, large enough to be worth a read.
_BLOCK_BYTES = 1 << 20
_BLOCK_ROWS = 1024
# Errors of decoding bytes that are not as they were written.
_NOT_OURS = (
    AttributeError, LookupError, OverflowError, RecursionError, StopIteration, TypeError,
    ValueError, zlib.error,
)  # fmt: skip


@plain
class Identity:
    """Identifies the pipeline of the elements: its steps, and digests of its functions."""

    steps: list[str]
    functions: list[str]


class CacheReader:
    """The elements in a complete file, and the states between them."""

    def __init__(self, path: str, identity: Identity) -> None:
        self._file = file = LocalFile(path)
        try:
            self._pieces = pieces = PieceReader(file.read, file.size)
            self._begin = pieces.footer["begin"]
            steps, functions = list(pieces.footer["steps"]), list(pieces.footer["functions"])
        except ForeignError:
            raise FileError(
                f"{path!r} is no cache of bushel, and `cache(path)` would write over it. Give "
                "another path."
            ) from None
        except _NOT_OURS as error:
            raise self._damaged(error) from error
        # The number of elements before each block, and in all.
        self._starts = list(accumulate(pieces.counts, initial=0))
        _check_same(path, identity, steps, functions)
        self._rows: tuple[int, list[Any]] | None = None
        self._states: tuple[int, list[Any]] | None = None

    @property
    def count(self) -> int:
        return self._starts[-1]

    def rows(self, start: int, want: int) -> list[Any]:
        """About `want` elements from `start` on; each object is handed out once only."""
        number = bisect_right(self._starts, start) - 1
        if self._rows is None or self._rows[0] != number:
            try:
                description, data, _ = self._parts(number)
                self._rows = number, self._all_of(number, decode(description, data))
            except _NOT_OURS as error:
                raise self._damaged(error, number) from error
        first = start - self._starts[number]
        rows = self._rows[1][first : first + want]
        # The user may change elements, so these are not kept.
        self._rows = None if first + want >= len(self._rows[1]) else self._rows
        if self._rows is not None:
            self._rows[1][first : first + want] = [None] * len(rows)
        return rows

    def forget(self) -> None:
        """Drops elements that were handed out, so that they are read again after going back."""
        self._rows = None

    def state_at(self, position: int) -> Any:
        """The state of the input after `position` elements."""
        if not position:
            return self._begin
        number = bisect_right(self._starts, position - 1) - 1
        if self._states is None or self._states[0] != number:
            try:
                states = json.loads(zlib.decompress(self._parts(number)[2]))
                self._states = number, self._all_of(number, states)
            except _NOT_OURS as error:
                raise self._damaged(error, number) from error
        return self._states[1][position - 1 - self._starts[number]]

    def _parts(self, number: int) -> list[bytes]:
        block = bytes(self._pieces.read(number))
        lengths = _LENGTHS.unpack_from(block) if len(block) >= _LENGTHS.size else (0, 0, 0)
        if sum(lengths) + _LENGTHS.size != len(block):
            raise ValueError(f"block {number} has parts of {lengths} bytes")
        ends = list(accumulate(lengths, initial=_LENGTHS.size))
        return [block[begin:end] for begin, end in pairwise(ends)]

    def _all_of(self, number: int, found: list[Any]) -> list[Any]:
        if len(found) != self._starts[number + 1] - self._starts[number]:
            raise ValueError(f"block {number} has {len(found)} elements")
        return found

    def _damaged(self, error: Exception, number: int = 0) -> FileError:
        start = self._pieces.offsets[number] if hasattr(self, "_pieces") else 0
        where = str(error) if isinstance(error, DamagedError) else f"from byte {start:,} on"
        return FileError(
            f"the cache {self._file.path!r} is damaged {where}: remove it, and it is made again."
        )


def _check_same(path: str, identity: Identity, steps: list[str], functions: list[str]) -> None:
    if steps != identity.steps:
        raise PlanError(
            f"the cache {path!r} was made by another pipeline: "
            f"{differing_steps(steps, identity.steps)}. Remove the file, or give another path."
        )
    if functions != identity.functions:
        changed = [new.split()[0] for new in identity.functions if new not in functions]
        raise PlanError(
            f"the cache {path!r} was made before a function of the pipeline was changed: "
            f"{', '.join(changed) or 'their order'}. Remove the file, or give another path."
        )


class CacheWriter:
    """Writes a stream from its beginning; the file appears once it is finished."""

    def __init__(self, descriptor: int, path: str, max_bytes: int | None) -> None:
        self._descriptor, self._path = descriptor, path
        self._max_bytes = max_bytes
        self._rows = Encoder()
        self._states: list[Any] = []
        self._discard = weakref.finalize(self, _discard, descriptor, path, os.getpid())
        self._pieces = PieceWriter(partial(_write_all, descriptor))

    @classmethod
    def begin(cls, path: str, max_bytes: int | None) -> "CacheWriter | None":
        """Begins a file; None if another process is writing it."""
        private = _private(path)
        flags = os.O_RDWR | os.O_CREAT
        descriptor = open_ours(private, flags, 0o644, "Remove it, or give another path.")
        try:
            # The other process may have finished, and renamed, the file since it was opened here.
            if lock_now(descriptor) and os.path.samestat(os.lstat(private), os.fstat(descriptor)):
                os.ftruncate(descriptor, 0)
                return cls(descriptor, path, max_bytes)
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def add(self, row: Any, state: Any) -> bool:
        """Takes an element and the state after it; False if the file would become too large."""
        try:
            self._rows.add(row)
        except UnheldError as error:
            raise BatchError(
                f"a cache on disk holds {HOLDS}, and {error}. Make it one of those in a `map` "
                "before `cache(path)`, or remember it in memory: `cache()`."
            ) from None
        self._states.append(state)
        if self._rows.size >= _BLOCK_BYTES or len(self._rows) >= _BLOCK_ROWS:
            self._end_block()
        return self._max_bytes is None or self._pieces.written + self._rows.size <= self._max_bytes

    def finish(self, begin: Any, identity: Identity) -> bool:
        """Makes the file appear, with the state at the beginning; False if it is too large."""
        if len(self._rows):
            self._end_block()
        self._pieces.finish(
            {"steps": identity.steps, "functions": identity.functions, "begin": begin}
        )
        if self._max_bytes is not None and self._pieces.written > self._max_bytes:
            self.abandon()
            return False
        rename(_private(self._path), self._path)
        self._discard.detach()
        os.close(self._descriptor)
        return True

    def abandon(self) -> None:
        """Removes the unfinished file."""
        self._discard()

    def _end_block(self) -> None:
        description, data = self._rows.parts()
        states = zlib.compress(json.dumps(self._states).encode(), 1)
        lengths = _LENGTHS.pack(len(description), len(data), len(states))
        self._pieces.add(len(self._rows), b"".join((lengths, description, data, states)))
        self._rows, self._states = Encoder(), []


# Not a method: the writer would refer to itself, and be freed late if it is not closed.
def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _private(path: str) -> str:
    return path + ".partial"


def _discard(descriptor: int, path: str, pid: int) -> None:
    if os.getpid() == pid:  # A forked child must not remove its parent's file.
        with suppress(OSError):
            os.unlink(_private(path))
    with suppress(OSError):
        os.close(descriptor)
