"""The other side of `contender.py`: starts a contender, asks it, lets it run only in its turn."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any

from benchmarks.proof import Proof

ROOT = Path(__file__).resolve().parents[1]
# No answer takes nearly as long; a contender that hangs costs its own cells, not the run.
ANSWER_TIMEOUT_S = 120.0
# One that is asked to end needs tenths of a second, unless it is in the middle of something.
FAREWELL_TIMEOUT_S = 10.0


class ContenderFailed(Exception):
    """A contender raised, died or did not answer; the text is the last thing it said."""


class ContenderProcess:
    """A contender in a process group of its own, so that stopping it stops its workers too.

    Between its turns it is stopped by a signal: whatever its threads would do in the
    background, they do not take the two cores from the one being measured.
    """

    def __init__(self, workload: str, contender: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contender", workload, contender],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            start_new_session=True,
        )

    def request_proof(self) -> None:
        """Asks for a proof without waiting, so that several contenders start up together."""
        self._send({"do": "prove"})

    def receive_proof(self) -> Proof:
        return Proof(**self._receive())

    def read(self, seconds: float) -> float:
        self._signal(signal.SIGCONT)
        self._send({"do": "read", "seconds": seconds})
        return float(self._receive())

    def end(self) -> None:
        """Lets it end by itself, workers and all, since shared memory outlives who is killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._signal(signal.SIGCONT)
        deadline = monotonic() + FAREWELL_TIMEOUT_S
        while self._group_exists() and monotonic() < deadline:
            sleep(0.01)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _group_exists(self) -> bool:
        self._process.poll()  # one that has ended stays in the group until it is asked for
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        # One that has died cannot hear this; it is noticed when no answer comes.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        if not readable:
            raise ContenderFailed(f"no answer within {ANSWER_TIMEOUT_S:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise ContenderFailed(self._last_words())
        self._signal(signal.SIGSTOP)
        return json.loads(line)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _last_words(self) -> str:
        self._process.wait()
        return last_words(self._errors, self._process.returncode)


def last_words(errors: IO[bytes], code: int | None) -> str:
    """Finds what a process raised, or said last, in what it wrote to standard error."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Iteration)\b", line)]
    said = raised or lines or [f"ended with code {code}"]
    return said[-1]
