"""The command line, environment and limits with which a nursery is started.

Properties that a process has from its start (its directory, environment, outputs, ...) stay the
same for ever, also in its workers. `surroundings` tells whether those of the program have changed.
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

# The first argument is `sys.path`; modules from that path are imported only after it is set.
# Imports create no garbage for the collector.
_BOOT = (
    "import sys, gc; gc.disable(); sys.path[:] = sys.argv.pop(1).split(chr(10)); "
    "from bushel.workers.nursery import serve; from bushel.workers.program import main; "
    "main(*serve(*map(int, sys.argv[1:4]), *sys.argv[4:]))"
)


def start_nursery() -> NurseryProcess:
    """Starts a process that Ctrl-C does not reach before it has set its own handling."""
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
        if forks:  # Otherwise it is the first worker, which has its own lifeline.
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
    """A file under another number, as the first three have a meaning for a new process."""
    try:
        return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(file)


def _same_or_nothing(file: int) -> int | None:
    """An output for `Popen`: that of this program, or none.

    A daemon has closed its own, and may have another file with that number.
    """
    with suppress(OSError):
        if os.get_inheritable(file):
            return None
    return subprocess.DEVNULL


def can_fork() -> bool:
    """Whether a process may be forked that has imported numpy, and its end be noticed.

    On macOS, system libraries do not survive it.
    """
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return False
    with suppress(OSError):
        os.close(os.pidfd_open(os.getpid()))
        return True
    return False


def _paths() -> str:
    """The entries of `sys.path` that Python itself would use."""
    return "\n".join(os.fspath(path) for path in sys.path if isinstance(path, (str, os.PathLike)))


# Those of bushel's modules that pipelines consist of, and so are sent to workers.
_OF_PIPELINES = ("bushel.sources.", "bushel.order.", "bushel.transforms.", "bushel.batch.")


def _likely() -> list[str]:
    """The modules that workers will probably need: imported ones of bushel and numpy.

    No others, as importing them may start threads.
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
    # The threads of OpenBLAS, started when numpy is imported, spin for 2^26 cycles before they
    # sleep, on cores that are needed for starting. 2^14 is about as long as it takes to wake one.
    keep["OPENBLAS_THREAD_TIMEOUT"] = "14"
    # A worker that imports JAX must not take the accelerator from the trainer.
    return {**keep, **os.environ, "JAX_PLATFORMS": "cpu"}


def surroundings() -> tuple[Any, ...]:
    """The surroundings of a process that would be started now; only to be compared."""
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
    """The identity of a file, whatever its name or number."""
    with suppress(OSError):
        found = os.stat(file)
        return found.st_dev, found.st_ino
    return None


def _output(file: int) -> Any:
    return _where(file) if _same_or_nothing(file) is None else None


def _umask() -> str:
    """The umask, if it can be read: setting it would affect other threads."""
    with suppress(OSError), open("/proc/self/status") as status:
        return next((line for line in status if line.startswith("Umask:")), "")
    return ""
