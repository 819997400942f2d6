"""Programs that tests start: alone, or as the ranks of a torch job on this machine."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import bushel
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent.parent


def run(*arguments: str, **environment: str) -> Any:
    """Runs a program to its end, and returns its last line, which is JSON."""
    return ranks(1, *arguments, **environment)[0]


def ranks(count: int, *arguments: str, **environment: str) -> list[Any]:
    """Runs it as so many ranks, and returns the last line of each."""
    paths = os.pathsep.join([str(Path(bushel.__file__).parent.parent), str(ROOT)])
    own = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    if count > 1:
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        own |= {"WORLD_SIZE": str(count)}
    started: list[subprocess.Popen[str]] = []
    try:
        for rank in range(count):
            number = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if count > 1 else {}
            started.append(
                subprocess.Popen(
                    [sys.executable, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=os.environ | own | environment | number,
                )
            )
        told = []
        for process in started:
            printed, errors = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, errors[-3000:]
            told.append(json.loads(printed.splitlines()[-1]))
        return told
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
