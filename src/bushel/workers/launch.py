"""The command line, environment and limits with which a nursery is started.

What a process is born with (its directory, its environment, its outputs, ...) it has for ever,
and its workers after it. `surroundings` tells whether that is still what the program has.
"""

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from bushel.errors import WorkerError
from bushel.workers import kept_memory
from bushel.workers.child import NurseryProcess
from bushel.workers.lifeline import kill_when_closed

# The first argument is `sys.path`; nothing of the path is imported before it is set. Imports
# make nothing that a collector of garbage could find.
_BOOT = (
    "import sys, gc; gc.disable(); sys.path[:] = sys.argv.pop(1).split(chr(10)); "
    "from bushel.workers.nursery import serve; from bushel.workers.program import main; "
    "main(*serve(*map(int, sys.argv[1:4]), *sys.argv[4:]))"
)


def start_nursery() -> NurseryProcess:
    """Starts a process that Ctrl-C does not reach before it says what it thinks of that."""
    ours, theirs = socket.socketpair()
    watched, lifeline = os.pipe()
    given = [_moved(theirs.detach()), _moved(watched)]
    forks = can_fork()
    arguments = [_paths(), *map(str, given), str(int(forks)), *_likely()]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            [*_interpreter(), "-c", _BOOT, *arguments],
            pass_fds=given,
            stdin=subprocess.DEVNULL,
            stdout=_same_or_nothing(1),
            stderr=_same_or_nothing(2),
            env=_environment(),
        )
        if forks:  # Or it is the first worker, which has a lifeline of its own.
            kill_when_closed(given[1], process.pid)
    except BaseException:
        ours.close()
        os.close(lifeline)
        raise
    finally:
        for file in given:
            os.close(file)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return NurseryProcess(process, ours, lifeline, forks)


def _moved(file: int) -> int:
    """A file under another number: the first three mean something to a new process."""
    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(file)


def _same_or_nothing(file: int) -> int | None:
    """What `Popen` is to give the process as an output: that of this program, or nothing.

    A daemon has closed its own, and may have another file by that number.
    """
    with suppress(OSError):
        if os.get_inheritable(file):
            return None
    return subprocess.DEVNULL


def can_fork() -> bool:
    """Whether a process may be forked that has imported numpy, and its end be noticed.

    On macOS libraries of the system do not survive it.
    """
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return False
    with suppress(OSError):
        os.close(os.pidfd_open(os.getpid()))
        return True
    return False


def _paths() -> str:
    """What is on `sys.path` that Python itself would look at."""
    return "\n".join(os.fspath(path) for path in sys.path if isinstance(path, (str, os.PathLike)))


# Of bushel's own modules, those that pipelines are made of, and so what workers are sent.
_OF_PIPELINES = ("bushel.sources.", "bushel.order.", "bushel.transforms.", "bushel.batch.")


def _likely() -> list[str]:
    """The modules that workers will probably need: what this program has of such modules.

    Nothing but bushel's and numpy's: what else a program imports may start threads.
    """
    found = [name for name in list(sys.modules) if name.startswith(_OF_PIPELINES)]
    return [*found, "bushel.samplers", "bushel.core.rng", "numpy.random"]


def _interpreter() -> list[str]:
    """The command that starts a Python like this one."""
    if not sys.executable:
        raise WorkerError("worker processes need `sys.executable`, and there is none.")
    options = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    for option in sys.warnoptions:
        options += ["-W", option]
    return [sys.executable, *options]


def _environment() -> dict[str, str]:
    keep = kept_memory.variables()
    # The threads of OpenBLAS, started when numpy is imported, look for something to do for
    # 2^26 cycles before they sleep, on cores that are wanted for starting. 2^14 is about as
    # long as it takes to wake one.
    keep["OPENBLAS_THREAD_TIMEOUT"] = "14"
    # A worker that imports JAX must not take the accelerator from the trainer.
    return {**keep, **os.environ, "JAX_PLATFORMS": "cpu"}


def surroundings() -> tuple[Any, ...]:
    """What a process that is started now is born with; compared, never looked into."""
    return (
        os.getpid(),
        _interpreter(),
        _paths(),
        _environment(),
        _where("."),
        *map(_output, (1, 2)),
        os.getpgrp(),
        os.getsid(0),
        os.getresuid(),
        os.getresgid(),
        os.getgroups(),
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getaffinity(0),
        os.sched_getscheduler(0),
        [resource.getrlimit(kind) for kind in _LIMITS],
        _umask(),
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    )


_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


def _where(file: int | str) -> tuple[int, int] | None:
    """Which file it is, by whatever name or number."""
    with suppress(OSError):
        found = os.stat(file)
        return found.st_dev, found.st_ino
    return None


def _output(file: int) -> Any:
    return _where(file) if _same_or_nothing(file) is None else None


def _umask() -> str:
    """The mask for new files, where it can be read: setting it would show in other threads."""
    with suppress(OSError), open("/proc/self/status") as status:
        return next((line for line in status if line.startswith("Umask:")), "")
    return ""
