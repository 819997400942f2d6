"""Real processes: which there are, how they end, and programs that are run to see it."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import bushel
from tests.nursery import idle_pids
from tests.patience import PATIENCE_SECONDS

linux = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="it looks at processes in /proc"
)


def wait_until(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether a condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def _stat(pid: int | str) -> list[str]:
    """State, parent and the rest; nothing for a process that is no more."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The name, in brackets, may hold anything.
    return text.rpartition(")")[2].split()


def descendants(of: int | None = None) -> set[int]:
    """All processes that a process started and that have not been waited for."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(entry)):
            children.setdefault(int(stat[1]), []).append(int(entry))
    found: set[int] = set()
    ahead = [os.getpid() if of is None else of]
    while ahead:
        below = children.get(ahead.pop(), [])
        found.update(below)
        ahead += below
    return found


def nurseries(of: int | None = None) -> set[int]:
    """The processes from which the workers of a process are forked.

    Without the one that is kept for other tests while nobody has it.
    """
    parent = str(os.getpid() if of is None else of)
    return {
        pid
        for pid in descendants(of) - idle_pids()
        if _stat(pid)[1:2] == [parent] and "bushel.workers.nursery" in _command(pid)
    }


def workers_of(of: int | None = None) -> set[int]:
    """The worker processes of a process."""
    return set().union(*map(descendants, nurseries(of)))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def assert_gone(pids: set[int]) -> None:
    assert pids, "there was no process to watch"
    wait_until(lambda: not any(map(is_alive, pids)))
    left = {pid: _command(pid) for pid in pids if is_alive(pid)}
    assert not left, f"still alive: {left}"


def take_until(iterator: Any, done: Callable[[Any], bool]) -> None:
    """Takes elements until one satisfies a condition."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done(next(iterator)):
        assert time.monotonic() < deadline


def worker_pids(iterator: Any, count: int) -> set[int]:
    """Takes elements, which are the pids of who made them, until all workers were seen."""
    seen: set[int] = set()
    take_until(iterator, lambda pid: seen.add(pid) or len(seen) == count)  # type: ignore[func-returns-value]
    assert os.getpid() not in seen
    return seen


# Programs.

_HEAD = """
import json, os, signal, sys, time
import numpy as np
import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions

# As in a terminal, whatever the one who runs the tests has set (`nohup`, a job of a shell).
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def tell(**what):
    print(json.dumps(what), flush=True)

def workers(count, **options):
    return MultiprocessingOptions(num_workers=count, **options)

def pids_of(iterator, count):
    seen = set()
    while len(seen) < count:
        seen.add(next(iterator))
    return sorted(seen)
"""


def program(text: str) -> str:
    """The text of a program, with the names that most of them use."""
    return _HEAD + textwrap.dedent(text)


class Program:
    """A Python program that runs, in a session of its own, with a temporary folder of its own."""

    def __init__(self, folder: Path, text: str, way: str = "file") -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        script = folder / "script.py"
        script.write_text(program(text))
        arguments = {"file": [str(script)], "stdin": ["-"], "-c": ["-c", program(text)]}[way]
        source = str(Path(bushel.__file__).parent.parent)
        with script.open() as stdin:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=stdin if way == "stdin" else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": source, "TMPDIR": str(self.temporary)},
                start_new_session=True,
            )
        self.pid = self._process.pid

    def hear(self) -> Any:
        """What the program tells next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, out, err = self.wait()
            raise AssertionError(f"the program ended early:\n{out}\n{err}")
        return json.loads(line)

    def kill(self, number: int) -> None:
        """Sends a signal to the program alone."""
        self._process.send_signal(number)

    def interrupt(self) -> None:
        """Does what Ctrl-C does in a terminal: all processes of the group hear it."""
        os.killpg(self.pid, signal.SIGINT)

    def wait(self) -> tuple[int, str, str]:
        """Waits for the end; returns the exit code and what was printed."""
        out, err = self._process.communicate(timeout=PATIENCE_SECONDS)
        return self._process.returncode, out, err

    def wait_for_exit(self) -> int:
        """Waits for the program's own end, whoever may still hold its output open."""
        return self._process.wait(PATIENCE_SECONDS)

    def clean_up(self) -> None:
        """Ends whatever of it is left; the session is its own, so nobody else is hit."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def running(folder: Path, text: str, way: str = "file") -> Iterator[Program]:
    """Runs a program beside the test."""
    started = Program(folder, text, way)
    try:
        yield started
    finally:
        started.clean_up()


def run(folder: Path, text: str, way: str = "file") -> tuple[int, list[Any], str]:
    """Runs a program to its end; returns exit code, what it told, and its stderr."""
    with running(folder, text, way) as started:
        code, out, err = started.wait()
        return code, [json.loads(line) for line in out.splitlines()], err


def told(folder: Path, text: str, way: str = "file") -> Any:
    """Runs a program that ends well and silently; returns the one thing that it told."""
    code, lines, err = run(folder, text, way)
    assert (code, err) == (0, ""), err
    (line,) = lines
    return line
