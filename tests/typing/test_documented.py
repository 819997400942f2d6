"""What type checkers say of the programs that the documentation shows."""

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"^ *```pycon\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def _program(page: Path) -> str:
    """The examples of a page as one program, without those that are shown for their error."""
    examples = [
        example
        for block in _BLOCK.findall(page.read_text())
        for example in doctest.DocTestParser().get_examples(block)
    ]
    return "".join(example.source for example in examples if example.exc_msg is None)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for page in PAGES:
        if program := _program(page):
            (folder / f"{page.stem.replace('-', '_').lower()}_page.py").write_text(program)
    assert {"guide_page.py", "files_page.py"} <= {path.name for path in folder.iterdir()}
    return folder


def test_mypy_has_nothing_to_say(programs: Path) -> None:
    """Functions of the examples have no annotations; all else is checked strictly."""
    lenient = ["--allow-untyped-defs", "--allow-untyped-calls", "--allow-redefinition"]
    foreign = ["--local-partial-types", "--ignore-missing-imports", "--follow-imports=silent"]
    files = sorted(map(str, programs.glob("*.py")))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *lenient, *foreign, *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_finds_no_error(programs: Path) -> None:
    settings = {
        "include": [str(programs), str(HERE / "datasets.py"), str(HERE / "loaders.py")],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",
    }
    (programs / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable),
            *("--outputjson", "--level", "error", "--project", str(programs)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] >= 4
    assert not found["generalDiagnostics"], json.dumps(found["generalDiagnostics"], indent=1)
