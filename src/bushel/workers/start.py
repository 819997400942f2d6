"""Starts worker processes through the nursery; the error if none can be started.

A worker takes a tenth of a second to import numpy. In that time the trainer imports the modules for
talking to it, and pickles the pipeline.
"""

import os
import socket
from contextlib import suppress

from bushel.core.limits import limit_of
from bushel.core.memory_file import create_unnamed
from bushel.errors import WorkerError
from bushel.workers import early_nursery
from bushel.workers.child import Child, NurseryProcess

# The size of a worker's status page (see `Status`).
PAGE = 4096


def not_started(error: OSError | MemoryError) -> WorkerError:
    """The error if no process could be started."""
    return WorkerError(f"no worker process can be started: {limit_of(error) or error}.")


class Started:
    """A process, and the files that it shares with this one."""

    def __init__(self, index: int, count: int, nursery: NurseryProcess) -> None:
        self.index = index
        self.lifeline = self.status = self.stacks = -1
        self.connection, theirs = socket.socketpair()
        lifeline = -1
        try:
            lifeline, self.lifeline = os.pipe()
            self.status, self.stacks = create_unnamed(PAGE), create_unnamed(0)
            given = (theirs.fileno(), self.status, self.stacks, lifeline)
            self.process = nursery.ask(given, index, count)
        except BaseException:
            self._close_files()
            raise
        finally:
            theirs.close()
            if lifeline >= 0:
                os.close(lifeline)

    def end(self) -> None:
        """Makes sure that the process is gone, and everything that belongs to it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Releases the process, and closes its files, in this process."""
        if self.process.returncode is None:
            self.process.returncode = 0  # Not ours to wait for.
        if isinstance(self.process, Child):
            self.process.close()
        self._close_files()

    def _close_files(self) -> None:
        self.connection.close()
        for name in ("lifeline", "status", "stacks"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                setattr(self, name, -1)
                with suppress(OSError):
                    os.close(descriptor)


class Starter:
    """Starts the workers of one pool, and replacements for those that died."""

    def __init__(self, count: int, most: int | None = None) -> None:
        """`count` workers at first, and at most `most` at the same time."""
        self._count = count
        self._most = count if most is None else most
        self._lease: early_nursery.Lease | None = None
        # Workers that wait for their payload.
        self._waiting: list[Started] = []

    def start_all(self) -> None:
        """Starts all workers, before they are needed."""
        try:
            for index in range(self._count):
                self._waiting.append(self._new(index))
        except BaseException:
            self.end()
            raise

    def start(self, index: int) -> Started:
        """Returns a waiting worker, or a new one."""
        return self._waiting.pop(0) if self._waiting else self._new(index)

    def _new(self, index: int) -> Started:
        try:
            if self._lease is not None:
                self._lease.nursery.read()
            if self._lease is None or self._lease.nursery.gone:
                self._end_nursery()
                self._lease = early_nursery.take()
            return Started(index, self._most, self._lease.nursery)
        except (OSError, MemoryError) as error:
            raise not_started(error) from error

    def end(self) -> None:
        """Ends waiting workers, and the nursery."""
        while self._waiting:
            self._waiting.pop().end()
        self._end_nursery()

    def _end_nursery(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    def forget(self) -> None:
        """Releases everything in a forked child: it belongs to the parent."""
        while self._waiting:
            self._waiting.pop().forget()
        if self._lease is not None:
            self._lease.nursery.forget()
            self._lease = None
