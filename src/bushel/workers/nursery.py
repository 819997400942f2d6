"""The nursery: a process that has imported what workers need, and forks them.

    trainer ── asks for a worker, with its files ──────────> nursery ── forks ──> worker
            <─ says that it is born, and later how it ended ─

It has no threads and keeps no files: it is no fork of the trainer, and closes a worker's files as
soon as the worker has them. Between requests, it imports modules that workers may need besides
those that all of them need.
"""

import errno
import gc
import os
import select
import signal
import socket
import struct
import sys
from array import array
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

from bushel.transport.channel import receive_files, send_files

REQUEST = struct.Struct("<iii")  # The child's number, the worker's index, the number of files.
NEWS = struct.Struct("<iii")  # The kind of news, the child's number, its pid or exit code.
# Born, ended, or not forked: then the value is the reason (an `errno`).
BORN, ENDED, REFUSED = 0, 1, 2


def serve(connection: int, lifeline: int, forks: int, *likely: str) -> tuple[int, ...]:
    """Forks workers until the trainer is gone; returns in each of them, with its files.

    Without forking (`forks` is 0) this process becomes the first worker itself. `lifeline` ends
    this process with the trainer (see `kill_when_closed`); `likely` are modules that workers will
    probably import.
    """
    # The trainer gets Ctrl-C as well, and decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    trainer = socket.socket(fileno=connection)
    children: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(trainer, select.POLLIN)
    ahead: Iterator[str] = iter(likely)
    while True:
        # While there are no requests, import modules.
        while not (news := poll.poll(0)) and (name := next(ahead, None)):
            with suppress(ImportError):  # The code that needs it will raise the error.
                import_module(name)
        for file, _ in news or poll.poll():
            if file in children:
                poll.unregister(file)
                _tell_end(trainer, file, *children.pop(file))
                continue
            number, index, count, files = _hear(trainer)
            # Objects that exist now are never garbage: examining them would copy their memory in
            # workers.
            gc.freeze()
            # There is no more time for imports, as workers begin.
            ahead = iter(())
            try:
                pid = os.fork() if forks else 0
            except OSError as error:
                # Reported before its files are closed, at which point the trainer checks the child.
                _tell(trainer, NEWS.pack(REFUSED, number, error.errno or 0), [])
                _close(files)
                continue
            if not pid:
                trainer.close()
                os.close(lifeline)
                for pidfd in children:
                    os.close(pidfd)
                _be_different()
                return *files, index, count
            pidfd = _tell_birth(trainer, number, pid)
            _close(files)
            children[pidfd] = number, pid
            poll.register(pidfd, select.POLLIN)


def _hear(trainer: socket.socket) -> "tuple[int, int, int, array[int]]":
    try:
        request, files = receive_files(trainer, REQUEST.size)
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise
        request = b""
    if not request:
        os._exit(0)  # The trainer is gone.
    number, index, count = REQUEST.unpack(request)
    return number, index, count, files


def _close(files: "array[int]") -> None:
    for file in files:
        os.close(file)


def _tell_birth(trainer: socket.socket, number: int, pid: int) -> int:
    pidfd = os.pidfd_open(pid)
    _tell(trainer, NEWS.pack(BORN, number, pid), [pidfd])
    return pidfd


def _tell_end(trainer: socket.socket, pidfd: int, number: int, pid: int) -> None:
    # Until here no other process can have had this pid.
    _, status = os.waitpid(pid, 0)
    os.close(pidfd)
    _tell(trainer, NEWS.pack(ENDED, number, os.waitstatus_to_exitcode(status)), [])


def _tell(trainer: socket.socket, news: bytes, files: list[int]) -> None:
    try:
        send_files(trainer, news, files)
    except OSError:
        os._exit(0)  # The trainer is gone.


def _be_different() -> None:
    """Reseeds this process's random numbers; Python reseeds its own after a fork."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
