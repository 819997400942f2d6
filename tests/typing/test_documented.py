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
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "coming-from").glob("*.md")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")),
    *sorted((ROOT / "examples").glob("[0-9]*.py")),
]

# What pyright finds in these is about other packages: how they are typed, or that they are not
# installed. mypy takes all that it does not know for anything, and reads these, too.
_ABOUT_OTHERS = {
    *("coming_from_hugging_face", "coming_from_tf_data", "coming_from_webdataset"),
    *("examples_07_dataloader_guide", "examples_10_four_loaders", "examples_11_pytorch"),
    *("examples_12_keras", "examples_17_ray_train", "examples_18_hugging_face_trainer"),
    *("examples_19_accelerate", "examples_20_lightning"),
    *("tutorials_images", "tutorials_tabular"),
}

_BLOCK = re.compile(r"^ *```pycon\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def _program(page: Path) -> str:
    """The examples of a page as one program, without those that are shown for their error."""
    if page.suffix == ".py":
        return page.read_text()
    if page.suffix == ".ipynb":
        return _cells(page)
    examples = [
        example
        for block in _BLOCK.findall(page.read_text())
        for example in doctest.DocTestParser().get_examples(block)
    ]
    return "".join(example.source for example in examples if example.exc_msg is None)


def _cells(notebook: Path) -> str:
    """The code of a notebook; an expression at the end of a cell is what it shows."""
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return "\n\n".join(code) + "\n"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for page in PAGES:
        if program := _program(page):
            name = f"{page.parent.name}_{page.stem}".replace("-", "_").lower()
            (folder / f"{name}_page.py").write_text(program)
    written = {path.name for path in folder.iterdir()}
    assert {"docs_guide_page.py", "tutorials_images_page.py"} <= written
    assert {"coming_from_torch_page.py", "examples_04_resume_page.py"} <= written
    return folder


def test_mypy_has_nothing_to_say(programs: Path) -> None:
    """Functions of the examples have no annotations; all else is checked strictly."""
    lenient = ["--allow-untyped-defs", "--allow-untyped-calls", "--allow-redefinition"]
    # Of classes of other packages, and Grain's, which programs name without their parameters.
    lenient += ["--allow-subclassing-any", "--allow-any-generics"]
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
        "exclude": [str(programs / f"{name}_page.py") for name in sorted(_ABOUT_OTHERS)],
        "extraPaths": [str(ROOT / "src"), str(ROOT / "examples")],
        "typeCheckingMode": "standard",
        "reportPossiblyUnboundVariable": False,  # What a loop leaves, shown after it.
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
