"""JAX jobs of several processes on this machine, started and ended by tests."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import bushel
from tests.patience import PATIENCE_SECONDS

_ROOT = Path(__file__).parent.parent.parent


@contextmanager
def free_port() -> Iterator[int]:
    """A port that nobody else gets meanwhile.

    It stays bound here. A server that shares ports, as gRPC's do, can use it all the same.
    """
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        reserved.bind(("::", 0))
        yield reserved.getsockname()[1]


class Jobs:
    """Runs jobs, one after the other (see `job.py`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        source = str(Path(bushel.__file__).parent.parent)
        path = os.pathsep.join((source, str(_ROOT)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lanes.job"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": path},
            start_new_session=True,
        )

    def run(self, name: str, count: int, log: str, **how: Any) -> list[list[Any]]:
        """Runs a job to its end; returns what each process told."""
        codes = self.run_and_fail(name, count, log, **how)
        failed = [index for index, code in enumerate(codes) if code not in (0, -signal.SIGKILL)]
        texts = [(self._folder / f"{log}-{index}.txt").read_text()[-4000:] for index in failed]
        assert not any(codes), f"the processes ended with {codes}:\n" + "\n".join(texts)
        return self.told(log, count)

    def run_and_fail(self, name: str, count: int, log: str, **how: Any) -> list[int]:
        """Runs a job to its end; returns the exit codes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        job = {"name": name, "count": count, "log": log, "folder": str(self._folder), **how}
        limit = threading.Timer(PATIENCE_SECONDS, self.end)
        limit.start()
        try:
            with free_port() as port:
                self._process.stdin.write(json.dumps({**job, "port": port}) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
        finally:
            limit.cancel()
        assert line, f"the job `{name}` of {count} processes took too long, or failed to start"
        codes: list[int] = json.loads(line)
        return codes

    def told(self, log: str, count: int) -> list[list[Any]]:
        """What each process of a job told."""
        texts = [(self._folder / f"{log}-{index}.jsonl").read_text() for index in range(count)]
        return [[json.loads(line) for line in text.splitlines()] for text in texts]

    def end(self) -> None:
        """Ends it all; the session is its own, so nobody else is hit."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.end()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
