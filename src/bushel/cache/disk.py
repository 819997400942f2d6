"""`cache(path)`: the stream that computes and writes a file once, and then reads it."""

import logging
import os
from typing import Any

import numpy as np

from bushel.cache.cache import CacheNode, cache_fields, cache_state
from bushel.cache.file import CacheReader, CacheWriter, Identity
from bushel.checkpoint.signed import describe_pipeline
from bushel.core.block import Block
from bushel.core.fingerprint import fingerprints
from bushel.core.frozen import plain
from bushel.core.limits import refusal
from bushel.core.state import State, indices_in
from bushel.core.state_fields import Fields
from bushel.core.stream import Chunk, Marks, OneInput, Stream, beginning_of, counted
from bushel.errors import BatchError, StateError
from bushel.files.progress_line import ProgressLine

_log = logging.getLogger("bushel")


@plain
class _FileMarks(Marks):
    reader: CacheReader
    start: int

    def at(self, used: int) -> State:
        return _state_in(self.reader, self.start + used)


def _state_in(reader: CacheReader, position: int) -> State:
    parent = reader.state_at(position)
    if parent is None:
        raise StateError(
            "this stream has no state: it was written from an iterator that has none itself."
        )
    return cache_state(parent, position)


class DiskCacheStream(OneInput):
    """Reads a file if there is one; else computes, and writes one if it sees all elements."""

    def __init__(self, input: Stream, node: CacheNode) -> None:
        super().__init__(input)
        assert node.file is not None
        self._node, self._path = node, node.file
        self._identity = Identity(
            describe_pipeline(node.input, in_full=True), fingerprints(node.input)
        )
        self._begin = beginning_of(input)
        self._position = 0
        self._reader: CacheReader | None = None
        self._writer: CacheWriter | None = None
        self._progress: ProgressLine | None = None
        # Whether a file may exist by now, and whether the input is at its beginning.
        self._looks = self._fresh = True
        # Why an element cannot be stored; it is then not delivered either.
        self._refused = ""
        self._hopeless = False

    def pull(self, want: int) -> Chunk | None:
        if self._refused:
            raise BatchError(self._refused)
        if self._looks:
            self._looks = False
            self._look()
        start = self._position
        if self._reader is not None:
            if start >= self._reader.count:
                return None
            rows = self._reader.rows(start, want)
            self._position += len(rows)
            positions = np.arange(start, self._position, dtype=np.int64)
            return Chunk(Block(rows, positions), _FileMarks(self._reader, start))
        chunk = self._input.pull(want)
        if chunk is None:
            self._finish()
            return None
        self._fresh = False
        if self._writer is not None:
            self._keep(chunk)
        size = len(chunk.block)
        self._position += size
        if self._progress is not None:
            self._progress.to(self._position)
        return Chunk(chunk.block, counted(chunk.marks, "position", start, size))

    def _look(self) -> None:
        if self._reader is None and os.path.exists(self._path):
            self._reader = CacheReader(self._path, self._identity)
        elif self._reader is None and self._fresh and not self._hopeless:
            try:
                self._writer = CacheWriter.begin(self._path, self._node.max_bytes)
                name = os.path.basename(self._path)
                self._progress = ProgressLine(f"filling the cache {name}", None, "elements")
            except OSError as error:
                self._give_up(_why_not(error, self._path))

    def _keep(self, chunk: Chunk) -> None:
        writer, rows = self._writer, chunk.block.rows()
        assert writer is not None
        try:
            for row, state in zip(rows, _states(chunk.marks, 1, len(rows)), strict=True):
                if not writer.add(row, state):
                    return self._give_up(f"it is larger than max_bytes={self._node.max_bytes:,}")
        except BatchError as error:
            self._refused = str(error)
            self._give_up("it cannot hold such elements")
            raise
        except (OSError, TypeError) as error:
            return self._give_up(_why_not(error, self._path))
        if chunk.block.failure is not None:
            self._give_up("an element failed, and has to do so again")

    def _finish(self) -> None:
        writer = self._writer
        if writer is None:
            return
        try:
            (begin,) = _states(self._begin, 0, 0)
            if writer.finish(begin, self._identity):
                self._writer = None
                self._end_progress()
            else:
                self._give_up(f"it is larger than max_bytes={self._node.max_bytes:,}")
        except (OSError, TypeError) as error:
            self._give_up(_why_not(error, self._path))

    def _give_up(self, why: str) -> None:
        """Stops writing, now and later."""
        self._hopeless = True
        self._leave()
        _log.warning("`%s`: nothing is kept, because %s.", self._node.label, why)

    def _leave(self) -> None:
        """Stops writing for now, as this pass will not see all of the stream."""
        writer, self._writer = self._writer, None
        self._end_progress()
        if writer is not None:
            writer.abandon()

    def _end_progress(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.end()

    def state(self) -> State:
        if self._reader is not None:
            return _state_in(self._reader, self._position)
        return cache_state(self._input.state(), self._position)

    def restore(self, state: State) -> None:
        parent, position = state["parent"], state["position"]
        self._leave()
        self._looks = True
        if self._reader is None and os.path.exists(self._path):
            self._reader = CacheReader(self._path, self._identity)
        if self._reader is not None:
            if position > self._reader.count:
                raise StateError(
                    f"this state is after {position} elements, and the cache {self._path!r} has "
                    f"{self._reader.count}."
                )
            known = self._reader.state_at(position)
            if known is not None and indices_in(known) != indices_in(parent):
                raise StateError(
                    f"this state is after {position} elements. There the input of the cache "
                    f"{self._path!r} is at {indices_in(known)}, but in this state it is at "
                    f"{indices_in(parent)}: it is damaged, or belongs to other data."
                )
            self._reader.forget()
        else:
            self._input.restore(parent)
            self._fresh = not position and parent in _states(self._begin, 0, 0)
        self._position = position

    def fields(self) -> Fields:
        return cache_fields(self._input)

    def most_before(self, state: State | None) -> int | None:
        return self._input.most_before(state and state["parent"])

    def close(self) -> None:
        self._leave()
        super().close()


def _why_not(error: OSError | TypeError, path: str) -> str:
    said = refusal(error, path) if isinstance(error, OSError) else str(error)
    return f"it cannot be written: {said}"


def _states(marks: Marks, first: int, last: int) -> list[Any]:
    """The states after `first` to `last` elements; None if a user's iterator has none."""
    try:
        return [marks.at(used) for used in range(first, last + 1)]
    except StateError:
        return [None] * (last + 1 - first)
