"""Counts the progress of shards, and prints the progress line."""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bushel.files.progress_line import ProgressLine, look_of

_SECONDS = 0.2


class ShardCounts:
    """Numbers, one for each shard, in a file that the processes of this machine share."""

    def __init__(self, path: str, name: str, count: int) -> None:
        """`name` is the name of the file, whatever `path` leads to it."""
        self._path, self._name, self._count = path, name, count
        self._mapped: Any = None

    def _open(self) -> Any:
        if self._mapped is None:
            try:
                # On another machine, the path may lead to an unrelated file.
                if self._name not in os.path.realpath(self._path):
                    raise FileNotFoundError(self._path)
                self._mapped = np.memmap(self._path, np.int64, "r+", shape=(self._count,))
            except (OSError, ValueError):
                # No process would read them.
                self._mapped = np.zeros(self._count, np.int64)
        return self._mapped

    def set(self, number: int, value: int) -> None:
        """Updates the count of a shard."""
        self._open()[number] = value

    def total(self) -> int:
        """The sum of all counts."""
        return int(self._open().sum())

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_mapped": None}


@contextmanager
def shared_counts(count: int) -> Iterator[ShardCounts]:
    """A ShardCounts that exists within the block."""
    count = max(1, count)
    name = f"bushel-counts-{os.urandom(8).hex()}"
    if hasattr(os, "memfd_create"):
        # A file in memory: it ends with the processes, however they end, and needs no disk.
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.truncate(descriptor, 8 * count)
            yield ShardCounts(f"/proc/{os.getpid()}/fd/{descriptor}", name, count)
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory(prefix="bushel-") as folder:
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.truncate(8 * count)
        yield ShardCounts(path, name, count)


@contextmanager
def shown(
    what: str,
    total: int | None,
    unit: str,
    counts: ShardCounts,
    before: int,
    asked: bool | None,
) -> Iterator[None]:
    """Shows the progress and the time left within the block."""
    if look_of(sys.stderr, asked) == "none":
        yield
        return
    stopped = threading.Event()

    def report() -> None:
        with ProgressLine(what, total, unit, before=before, asked=asked) as progress:
            while not stopped.wait(_SECONDS):
                progress.to(before + counts.total())

    thread = threading.Thread(target=report, name="bushel-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
