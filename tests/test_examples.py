"""Every example runs as it stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bushel

# The bushel under test, wherever the script runs.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(bushel.__file__).parent.parent)}
EXAMPLES = Path(__file__).parent.parent / "examples"
every_example = pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name
)


def test_there_are_examples() -> None:
    assert len(list(EXAMPLES.glob("[0-9]*.py"))) >= 5


@every_example
def test_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    if path.name[0].isdigit():
        assert done.stdout.strip()


def test_numbered_ones_are_short() -> None:
    for path in EXAMPLES.glob("[0-9]*.py"):
        assert len(path.read_text().splitlines()) < 80, path
