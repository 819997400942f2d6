"""Reads ranges of remote files: joins neighbours, learns the size of requests, reads ahead."""

import os
import threading
import time
import warnings
from bisect import bisect_right
from concurrent.futures import Future, wait
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from bushel.core.limits import refusal
from bushel.core.positions import Keys
from bushel.errors import FileError
from bushel.files.backend import Backend, backend_of
from bushel.files.local import LONG, read_merged
from bushel.files.remote_cache import PIECE, CachedFile, GoneError, cache_here
from bushel.files.request_pool import requests

# Ranges with a smaller gap between them are one request, which takes no longer.
_GAP = 1 << 17
# Longer ranges are split into parts that are requested in parallel. A part has at least
# `_MOST_AT_ONCE` bytes, and as many as one connection reads in `_PART_SECONDS`. Joining parts costs
# a copy.
_MOST_AT_ONCE = 1 << 22
_PART_SECONDS = 0.05
_LONGEST_PART = 1 << 26
# The size above which the time of an answer depends on the rate, and not on the latency.
_TELLING = 1 << 19
# Bytes that a sequential reader prefetches, in parallel requests.
_AHEAD = 1 << 25
# How often pieces may vanish from the cache before they are read without it.
_MOST_ROUNDS = 4
# The same two bounds for pieces in the cache on this disk.
_LOCAL_GAP = 4096
_LOCAL_MOST_AT_ONCE = 1 << 23


class PartSize:
    """The size of one request, learnt from earlier requests.

    >>> size = PartSize()
    >>> for _ in range(4):
    ...     size.learn(longest=4_000_000, seconds=0.004)  # A server nearby.
    >>> size.bytes > 20_000_000
    True
    >>> for _ in range(8):
    ...     size.learn(longest=4_000_000, seconds=0.1)  # One far away.
    >>> size.bytes < 5_000_000
    True
    """

    def __init__(self) -> None:
        self.bytes = _MOST_AT_ONCE

    def learn(self, longest: int, seconds: float) -> None:
        """Takes note of parallel requests, and of the bytes of the longest."""
        if longest >= _TELLING:
            reached = longest / max(seconds, 1e-6) * _PART_SECONDS
            wanted = min(max(reached, _MOST_AT_ONCE), _LONGEST_PART)
            self.bytes = round((self.bytes + wanted) / 2)


class RemoteFile:
    """A file that is read by requests; another process opens it anew.

    Bytes that were read are stored on this machine, as far as the cache permits (`Cache`).
    """

    def __init__(self, path: str, backend: Backend | None = None) -> None:
        """`backend` is that of an earlier opening of the file: then no request is made."""
        self.path = path
        self._backend = backend or backend_of(path)
        self.size, self.stamp = self._backend.size, self._backend.stamp
        self._read_to = -1
        self._part_size = PartSize()
        self._keep()

    @property
    def backend(self) -> Backend:
        """What is known about the file: small, and valid as long as the file is unchanged."""
        return self._backend

    def _keep(self) -> None:
        cache = cache_here() if self._backend.keepable else None
        self._pid = os.getpid()
        self._kept = None if cache is None else cache.keep(self.path, self.stamp, self.size)

    def read(self, start: int, stop: int) -> bytes:
        onward, self._read_to = start == self._read_to, stop
        if onward and self._kept is not None and self._pid == os.getpid():
            self._bring_ahead(self._kept, start, stop)
        return self.read_many(np.array([start]), np.array([stop]))[0]

    def read_once(self, start: int, stop: int) -> bytes:
        """Reads bytes that will not be needed again: they are not stored in the cache."""
        return self._read_past_the_cache(np.array([start]), np.array([stop]))[0]

    def _bring_ahead(self, kept: CachedFile, start: int, stop: int) -> None:
        """Prefetches for a sequential reader."""
        begin = np.array([start])
        with suppress(GoneError):
            if stop <= self.size and kept.missing(begin, np.array([stop])):
                end = np.array([min(self.size, stop + _AHEAD)])
                self._bring(kept, kept.missing(begin, end))

    def read_many(self, starts: Keys, stops: Keys) -> list[bytes]:
        if not len(starts):
            return []
        if starts.min() < 0 or stops.max() > self.size:
            raise FileError(
                f"{self.path!r} has {self.size:,} bytes, and bytes {starts.min():,} to "
                f"{stops.max():,} were wanted. Was it cut short, or replaced by a shorter one?"
            )
        if self._pid != os.getpid():
            self._keep()  # Forked, perhaps while another thread held a lock.
        for _ in range(_MOST_ROUNDS):
            kept = self._kept
            if kept is None:
                break
            try:
                missing = kept.missing(starts, stops)
                if missing and not self._bring(kept, missing):
                    break
                if not missing or not kept.missing(starts, stops):
                    kept.touch()
                    return read_merged(kept, starts, stops, _LOCAL_GAP, _LOCAL_MOST_AT_ONCE, LONG)
            except GoneError:
                # Pieces were removed to make room. The remaining ones are found again.
                if self._kept is kept:
                    self._keep()
        return self._read_past_the_cache(starts, stops)

    def _bring(self, kept: CachedFile, missing: list[int]) -> bool:
        """Gets pieces into the cache; waits for those that another thread is getting."""
        here = _here
        mine: list[int] = []
        others: list[Future[None]] = []
        with here.lock:
            for piece in missing:
                claim = here.claims.get((self.path, self.stamp, piece))
                if claim is None:
                    here.claims[self.path, self.stamp, piece] = Future()
                    mine.append(piece)
                else:
                    others.append(claim)
        runs = _runs(mine)
        try:
            kept_all = requests.each(lambda run: self._get(kept, run), runs)
        except _DiskError as error:
            self._kept = None
            warnings.warn(
                f"remote files are read without a cache, for it cannot be written: {error}. "
                "BUSHEL_CACHE names another folder, and BUSHEL_CACHE_BYTES=0 does without.",
                stacklevel=2,
            )
            return False
        finally:
            # Successful or not: waiting threads check whether the piece is there.
            with here.lock:
                claims = [here.claims.pop((self.path, self.stamp, piece)) for piece in mine]
            for claim in claims:
                claim.set_result(None)
        wait(others)
        return all(kept_all)

    def _get(self, kept: CachedFile, run: range) -> bool:
        """Gets neighbouring pieces; returns whether they were stored."""
        first = run.start * PIECE
        data = memoryview(self._backend.fetch(first, min(run.stop * PIECE, self.size)))
        try:
            return all(kept.put(piece, data[piece * PIECE - first :][:PIECE]) for piece in run)
        except OSError as error:
            raise _DiskError(refusal(error, kept.folder)) from error

    def _read_past_the_cache(self, starts: Keys, stops: Keys) -> list[bytes]:
        spans = _spans(starts, stops, self._part_size.bytes)
        begins = [start for start, _ in spans]
        began = time.perf_counter()
        whole = self._backend.fetch_many(spans)
        longest = max((stop - start for start, stop in spans), default=0)
        self._part_size.learn(longest, time.perf_counter() - began)
        parts = [memoryview(part) for part in whole]

        def cut(start: int, stop: int) -> bytes:
            number = bisect_right(begins, start) - 1
            begin, end = spans[number]
            if (start, stop) == (begin, end):
                return bytes(whole[number])  # No copy, if it has the right type.
            if stop <= end:
                return bytes(parts[number][start - begin : stop - begin])
            last = bisect_right(begins, stop - 1) - 1
            rest = parts[last][: stop - begins[last]]
            return b"".join([parts[number][start - begin :], *parts[number + 1 : last], rest])

        ranges = zip(starts.tolist(), stops.tolist(), strict=True)
        return [cut(start, stop) if start < stop else b"" for start, stop in ranges]

    def check(self) -> None:
        # Makes no request: every answer names its version of the file, and the cache has the
        # version that was opened.
        return

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFile, (self.path,)


class _DiskError(Exception):
    """The cache cannot be written."""


class _Process:
    """State that the remote files of a process share; a fork begins anew."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # Pieces that some thread is getting now.
        self.claims: dict[tuple[str, str, int], Future[None]] = {}


_here = _Process()


def _begin() -> None:
    global _here
    _here = _Process()


os.register_at_fork(after_in_child=_begin)


def _runs(pieces: list[int]) -> list[range]:
    """Joins neighbours, up to the size of one request.

    >>> _runs([1, 2, 3, 7])
    [range(1, 4), range(7, 8)]
    """
    most = _MOST_AT_ONCE // PIECE
    runs: list[range] = []
    for piece in pieces:
        if runs and piece == runs[-1].stop and len(runs[-1]) < most:
            runs[-1] = range(runs[-1].start, piece + 1)
        else:
            runs.append(range(piece, piece + 1))
    return runs


def _spans(starts: Keys, stops: Keys, most: int) -> list[tuple[int, int]]:
    """The requests for all of these ranges, none longer than `most`, in the order of the file.

    >>> _spans(np.array([900_000, 10, 300]), np.array([900_001, 20, 400]), 1 << 22)
    [(10, 400), (900000, 900001)]
    """
    filled = starts < stops
    order = starts[filled].argsort(kind="stable")
    begins, ends = starts[filled][order], np.maximum.accumulate(stops[filled][order])
    breaks = (np.flatnonzero(begins[1:] > ends[:-1] + _GAP) + 1).tolist()
    spans: list[tuple[int, int]] = []
    for first, last in pairwise([0, *breaks, len(begins)]):
        if first < last:
            start, stop = int(begins[first]), int(ends[last - 1])
            cuts = [*range(start, stop, most), stop]
            spans += pairwise(cuts)
    return spans
