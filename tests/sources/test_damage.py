"""Files that were damaged: each record is right, or an error that names the file.

The damage is random, with a seed. `BUSHEL_EXAMPLES=1000` tries so many cases of each format,
other ones each time.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import randrange
from typing import Any

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.sources.damage import FORMATS
from tests.thorough import THOROUGH, examples

SEED = randrange(10**6) if THOROUGH else 1


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """What went wrong with a format. One process reads all, or the next one what is left."""
    found: dict[str, list[Any]] = {}

    def of(format: str) -> list[Any]:
        while format not in found:
            _look(tmp_path_factory.mktemp("damage"), found)
        return found[format]

    return of


def _look(folder: Path, found: dict[str, list[Any]]) -> None:
    left = [name for name in FORMATS if name not in found]
    ran = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "tests.sources.damage"),
            *(str(folder), str(SEED), str(examples(20)), *left),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS + examples(20),
    )
    case = [left[0], "before the first"]
    for line in map(json.loads, ran.stdout.splitlines()):
        case = line.get("case", case)
        name, *problem = line.get("problem", case)
        found.setdefault(name, []).extend([problem] if "problem" in line else [])
    if ran.returncode:
        name, number = case
        ended = f"the process ended ({ran.returncode}): {ran.stderr[-2000:]}"
        found.setdefault(name, []).append([number, ended])


@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_file(format: str, problems: Callable[[str], list[Any]]) -> None:
    assert problems(format) == [], f"seed {SEED}"
