"""Programs that tests run in interpreters of their own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

SOURCES = str(Path(__file__).parents[2] / "src")


def run(program: str, *arguments: object, **environment: str) -> str:
    """Runs a program in an interpreter of its own and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": SOURCES, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
