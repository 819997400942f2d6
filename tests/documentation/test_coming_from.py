"""Pages that show a program of another package beside the same one of bushel: both run as shown.

Programs are blocks of Python with the name of a file for a title. They are run in one folder, one
after the other, and print what the page says. Other pages have such programs as doctests; these
need a file of their own, or packages that tests do not install.
"""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.thorough import slow

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"

# Page, the package that it is about, what only makes the data, and the programs that are the same.
_PAGES = [
    ("from-grain.md", "grain", [], ["with_grain.py", "with_bushel.py"]),
    (
        "coming-from/tfds.md",
        "tensorflow_datasets",
        ["prepare.py"],
        ["with_tfds.py", "with_bushel.py", "without_tfds.py"],
    ),
    (
        "coming-from/streaming-litdata.md",
        "streaming",
        [],
        ["with_streaming.py", "with_bushel.py", "in_place.py mds"],
    ),
    (
        "coming-from/streaming-litdata.md",
        "litdata",
        [],
        ["with_litdata.py", "with_bushel.py", "in_place.py lit"],
    ),
]

_PROGRAM = re.compile(
    r'^( *)```python title="(?P<name>\w+\.py)"\n(?P<code>.*?)^\1```$', re.DOTALL | re.MULTILINE
)
_PRINTED = re.compile(
    r'^```text title="What each of them prints"\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE
)


def _programs(page: str) -> dict[str, str]:
    found = _PROGRAM.finditer((DOCS / page).read_text())
    return {one["name"]: textwrap.dedent(one["code"]) for one in found}


@slow
@pytest.mark.parametrize(
    ("page", "package", "first", "same"), _PAGES, ids=[package for _, package, _, _ in _PAGES]
)
def test_both_sides(
    page: str, package: str, first: list[str], same: list[str], tmp_path: Path
) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed, whose program {page} shows")
    for name, code in _programs(page).items():
        (tmp_path / name).write_text(code)
    for command in first:
        _run(command, tmp_path)
    [printed] = _PRINTED.findall((DOCS / page).read_text())
    for command in same:
        # After what packages tell of their work meanwhile.
        last = _run(command, tmp_path).splitlines()[-len(printed.splitlines()) :]
        assert last == printed.splitlines(), command


def test_no_program_is_left_out() -> None:
    for page in {page for page, _, _, _ in _PAGES}:
        run = {
            command.split()[0]
            for other, _, first, same in _PAGES
            if other == page
            for command in [*first, *same]
        }
        assert run == set(_programs(page))


# Streaming imports torchvision, which may have been built for another torch: see there.
_WITH_STREAMING = """
import runpy
from benchmarks.jobs.streaming_import import import_streaming

import_streaming()
runpy.run_path("with_streaming.py", run_name="__main__")
"""


def _run(command: str, folder: Path) -> str:
    program = ["-c", _WITH_STREAMING] if command == "with_streaming.py" else command.split()
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
