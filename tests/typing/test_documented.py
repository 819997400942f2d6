"""What type checkers say of the programs that the documentation shows."""

import doctest
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.thorough import THOROUGH, slow

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "coming-from").glob("*.md")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")),
    *sorted((ROOT / "examples").glob("[0-9]*.py")),
]

# Pages in which pyright finds errors about other packages and how they are typed: words of the
# line or of what is said about it. mypy takes all that it does not know for anything.
_ABOUT_OTHERS = {
    "coming_from_hugging_face": ["theirs.iter("],
    "coming_from_tf_data": ["tf.data.Dataset.from_tensor_slices("],
    "coming_from_webdataset": ["webdataset.TarWriter(", "webdataset.WebDataset("],
    "examples_07_dataloader_guide": ["source[0]", "first['label']"],  # A source of TFDS.
    "examples_10_four_loaders": ["torch.utils.data.DataLoader(", "tf.data.AUTOTUNE"],
    "examples_11_pytorch": ["torch.utils.dlpack."],
    "examples_12_keras": ['parameter "kernel_initializer"', 'parameter "verbose"'],
    "examples_17_ray_train": ["result.metrics["],
    "examples_18_hugging_face_trainer": ["transformers.GPT2Config(", ".model.state_dict()"],
    "examples_19_accelerate": ["accelerator.gather("],
    "examples_20_lightning": ["lightning.pytorch.", "lightning.Trainer("],
    "tutorials_images": ["digits.images["],  # A table of scikit-learn, as is the next one.
    "tutorials_tabular": ["table.feature_names", "table.data"],
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


# Packages that mypy takes longer to read than ours: by default it takes them for anything.
_LARGE = ["cv2", "flax", "lightning", "matplotlib", "optax", "torch", "torchmetrics"]


def _settings(folder: Path) -> Path:
    """The settings of `make check`, and that large packages are passed over."""
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    (untyped,) = own["overrides"]
    lines = ["[mypy]", f"mypy_path = {own['mypy_path']}"]
    lines.append(f"enable_error_code = {', '.join(own['enable_error_code'])}")
    lines.append(f"[mypy-{','.join(untyped['module'])}]")
    lines += [f"follow_imports = {untyped['follow_imports']}", "ignore_missing_imports = true"]
    lines.append(f"[mypy-{','.join(f'{name}.*' for name in _LARGE)}]")
    # (torch.* is in both sections, of which the later one holds: it has stubs.)
    lines += ["follow_imports = skip", "follow_imports_for_stubs = true"]
    path = folder / "mypy.ini"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_mypy_has_nothing_to_say(programs: Path) -> None:
    """Functions of the examples have no annotations; all else is checked strictly."""
    lenient = ["--allow-untyped-defs", "--allow-untyped-calls", "--allow-redefinition"]
    # Of classes of other packages, and Grain's, which programs name without their parameters.
    lenient += ["--allow-subclassing-any", "--allow-any-generics"]
    foreign = ["--local-partial-types", "--ignore-missing-imports", "--follow-imports=silent"]
    # What mypy knows of other packages from the last time; that of `make check`, which has other
    # options, stays as it is.
    foreign += ["--cache-dir", str(ROOT / ".mypy_cache" / "pages")]
    if not THOROUGH:
        foreign += ["--config-file", str(_settings(programs))]
    files = sorted(map(str, programs.glob("*.py")))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *lenient, *foreign, *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@slow
def test_pyright_finds_no_error(programs: Path) -> None:
    """In the pages that mypy has read, and in the types that are stated."""
    others = [str(programs / f"{name}_page.py") for name in _ABOUT_OTHERS]
    included = [str(programs), str(HERE / "datasets.py"), str(HERE / "loaders.py")]
    found = _pyright(programs, included, others)
    assert not found, json.dumps(found, indent=1)


@slow
def test_pyright_finds_no_error_of_ours_beside_other_packages(programs: Path) -> None:
    found = _pyright(programs, [str(programs / f"{name}_page.py") for name in _ABOUT_OTHERS], [])
    ours = [one for one in found if not _is_about_others(one)]
    assert not ours, json.dumps(ours, indent=1)


def _pyright(folder: Path, included: list[str], excluded: list[str]) -> list[dict[str, Any]]:
    settings = {
        "include": included,
        "exclude": excluded,
        "extraPaths": [str(ROOT / "src"), str(ROOT / "examples")],
        "typeCheckingMode": "standard",
        "reportPossiblyUnboundVariable": False,  # What a loop leaves, shown after it.
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable),
            *("--outputjson", "--level", "error", "--project", str(folder)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] >= 4
    found: list[dict[str, Any]] = report["generalDiagnostics"]
    return found


def _is_about_others(found: dict[str, Any]) -> bool:
    if found.get("rule") == "reportMissingImports":  # Not every package is installed everywhere.
        return '"bushel' not in found["message"]
    page = Path(found["file"])
    line = page.read_text().splitlines()[found["range"]["start"]["line"]]
    words = _ABOUT_OTHERS[page.stem.removesuffix("_page")]
    return any(one in line or one in found["message"] for one in words)
