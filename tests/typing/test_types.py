"""What mypy sees when it reads a user's program."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is part of the extras `test` and `dev`")

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))

_REPORT = re.compile(r"^(?P<file>.+?):(?P<line>\d+): (?P<kind>note|error): (?P<text>.*)$")
_REVEALED = re.compile(r'^Revealed type is "(.*)"$')
_CODE = re.compile(r"  \[([\w-]+)\]$")
# "bushel.dataset.MapDataset" -> "MapDataset", also within brackets.
_MODULE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=\w)")


def _stated(path: Path) -> dict[int, str]:
    """What the comments of a file say, by line."""
    stated = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if match := re.search(r"(?:reveal_type\(.*\)  # |  # (?=error: ))(.+)$", line):
            stated[number] = match[1]
    return stated


def _reports(output: str) -> Iterator[tuple[str, int, str]]:
    for line in output.splitlines():
        if not (match := _REPORT.match(line)):
            continue
        revealed, code = _REVEALED.match(match["text"]), _CODE.search(match["text"])
        if revealed:
            said = _MODULE.sub("", revealed[1])
        elif match["kind"] == "error":
            said = f"error: {code[1] if code else match['text']}"
        else:
            continue
        yield Path(match["file"]).name, int(match["line"]), said


@pytest.fixture(scope="module")
def said() -> dict[str, dict[int, str]]:
    """What mypy says of all the files, by line."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", *map(str, FILES)]
    done = subprocess.run(
        command, cwd=HERE.parent.parent, capture_output=True, text=True, check=False
    )
    # 0 and 1: nothing, or something, to complain about. Otherwise mypy itself failed.
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, dict[int, str]] = {path.name: {} for path in FILES}
    for name, line, text in _reports(done.stdout):
        # An error elsewhere fails below, as a file that is not among these.
        found.setdefault(name, {})[line] = text
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_types_are_as_stated(path: Path, said: dict[str, dict[int, str]]) -> None:
    stated = _stated(path)
    assert len(stated) > 10
    assert said[path.name] == stated


def test_nothing_is_said_of_other_files(said: dict[str, dict[int, str]]) -> None:
    assert set(said) == {path.name for path in FILES}
