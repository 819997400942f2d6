"""Looks at the wheel and the sdist in dist/, installs each into an empty environment, and tries it.

    python -m tools.check_dist

Ends with an error that names what is wrong.
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

from tools.release_notes import version

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"

# What a fresh environment must be able to do with nothing but the core's two dependencies.
_TRIAL = """
import sys
import bushel
heavy = {"numpy", "cloudpickle", "jax", "torch", "pyarrow"} & set(sys.modules)
assert not heavy, f"`import bushel` loads {sorted(heavy)}"
import numpy as np
assert bushel.__version__ == sys.argv[1], bushel.__version__
ds = bushel.MapDataset.range(1000).seed(1).shuffle().map(lambda x: x * x).batch(10)
plain = [batch.tolist() for batch in ds]
workers = ds.to_iter_dataset().mp_prefetch(bushel.MultiprocessingOptions(num_workers=2))
with iter(workers) as iterator:
    assert [batch.tolist() for batch in iterator] == plain
extras = ("ArrayRecordDataSource", "huggingface", "keras", "torch")
for name in dir(bushel):
    if "Checkpoint" not in name and name not in extras:
        getattr(bushel, name)
print("tried", len(plain), "batches inline and with workers")
"""


def main() -> None:
    wheel, sdist = _the_one("*.whl"), _the_one("*.tar.gz")
    _check_wheel(wheel)
    _check_sdist(sdist)
    for package in (wheel, sdist):
        _try(package)
    print(f"check_dist: {wheel.name} and {sdist.name} hold what they should, install and run.")


def _the_one(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        sys.exit(f"check_dist: dist/ should have one {pattern}, and has {len(found)}.")
    if version() not in found[0].name:
        sys.exit(f"check_dist: {found[0].name} is not of version {version()}.")
    return found[0]


def _check_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as wheel:
        names = {PurePosixPath(name) for name in wheel.namelist()}
    strangers = {name.parts[0] for name in names} - {"bushel", f"bushel-{version()}.dist-info"}
    ours = {
        PurePosixPath(file.relative_to(ROOT / "src").as_posix())
        for file in (ROOT / "src" / "bushel").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    packed = {name for name in names if name.parts[0] == "bushel"}
    if strangers or packed != ours or PurePosixPath("bushel/py.typed") not in packed:
        sys.exit(
            f"check_dist: {path.name} also has {sorted(strangers)}, lacks "
            f"{sorted(map(str, ours - packed))} and should not have "
            f"{sorted(map(str, packed - ours))}."
        )


def _check_sdist(path: Path) -> None:
    with tarfile.open(path) as sdist:
        names = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in sdist.getnames()}
    wanted = (
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "pyproject.toml",
        "tests/conftest.py",
    )
    missing = [name for name in wanted if PurePosixPath(name) not in names]
    kept = {"site", "dist", "build", ".venv", ".ci", ".git"}
    extra = sorted({name.parts[0] for name in names if name.parts} & kept)
    if missing or extra:
        sys.exit(f"check_dist: {path.name} lacks {missing} and should not have {extra}.")


def _try(package: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="bushel-dist-") as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        _run(python, "-m", "pip", "install", "--quiet", str(package))
        listed = _run(python, "-m", "pip", "list", "--format=freeze").splitlines()
        came = {line.split("=")[0].split(" ")[0].lower() for line in listed}
        if came - {"pip", "setuptools"} != {"bushel", "numpy", "cloudpickle"}:
            sys.exit(f"check_dist: with {package.name} came {sorted(came)}.")
        _run(python, "-c", _TRIAL, version())
        _run(f"{folder}/bin/bushel", "--help")


def _run(*command: str) -> str:
    # From a folder without the sources: what was installed is what is imported.
    done = subprocess.run(
        command, cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"check_dist: `{' '.join(command)[:200]}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
