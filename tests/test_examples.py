"""Every example runs as it stands, and comes to the end that it promises.

Those that are Grain programs but for one line have to print what they print with Grain. What that
was once is kept; they are run with Grain where they print something else, and by `make test-all`.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bushel
from tests.patience import PATIENCE_SECONDS
from tests.thorough import THOROUGH

EXAMPLES = Path(__file__).parent.parent / "examples"
# What Grain programs print with Grain 0.2.18.
KEPT = Path(__file__).parent / "golden" / "examples"
# The bushel under test, wherever the script runs, and what examples import from each other.
PATHS = [str(Path(bushel.__file__).parent.parent), str(EXAMPLES), str(EXAMPLES.parent)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
every_example = pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name
)

# Words in what an example prints at the end, when everything is as it should be.
PROMISES = {
    "02_dataloader.py": ["the same ones"],
    "04_resume.py": ["identical", "With other data: "],
    "06_workers.py": ["One stream."],
    "07_dataloader_guide.py": ["from 2 workers", "0 4 1 2 3 1 2 3 0 4", "TensorFlow was not"],
    "08_cifar_source.py": ["different records", "resumed at batch 50"],
    "09_flax_checkpoint.py": ["was killed at step 120", "steps 100 to 200", "bit for bit"],
    "10_four_loaders.py": ["pytorch", "tensorflow_datasets", "hugging_face", "bushel_columns"],
    "11_pytorch.py": ["bit for bit", "none both"],
    "12_keras.py": ["bit for bit", "by position", "as a stream"],
    "13_older_names.py": ["PyGrain", "checkpoint saved and restored", "878 records were"],
    "14_many_hosts.py": ["are those of one process that never stopped"],
    "15_text_corpora.py": ["is padding", "record 40 of web.jsonl", "other 51 are identical"],
    "16_torch_ranks.py": ["are those of one process that never stopped"],
    "17_ray_train.py": ["2 workers trained", "4 workers", "of one process that never stopped"],
    "18_hugging_face_trainer.py": ["bit for bit", "100 rows in 1 shard"],
    "19_accelerate.py": ["the 9 steps of one that never stopped"],
    "20_lightning.py": ["bit for bit"],
    "21_ray_jax.py": ["2 workers trained", "4 workers", "of one process that never stopped"],
    "train_digits.py": ["came to the identical end"],
}
# Per cent, for every accuracy that it prints.
LEAST_ACCURACY = {
    "08_cifar_source.py": 85,
    "09_flax_checkpoint.py": 90,
    "10_four_loaders.py": 90,
    "11_pytorch.py": 90,
    "12_keras.py": 90,
    "20_lightning.py": 90,
    "train_digits.py": 95,
}
# What an example imports that not everybody who runs the tests has.
NEEDS = {
    "07_dataloader_guide.py": ["array_record", "cv2", "matplotlib", "orbax", "tensorflow_datasets"],
    "08_cifar_source.py": ["cv2"],
    "09_flax_checkpoint.py": ["flax", "orbax"],
    "10_four_loaders.py": ["cv2", "datasets", "matplotlib", "tensorflow", "torch"],
    "11_pytorch.py": ["torch"],
    "12_keras.py": ["keras"],
    "13_older_names.py": ["orbax"],
    "14_many_hosts.py": ["orbax"],
    "16_torch_ranks.py": ["torch"],
    "17_ray_train.py": ["ray", "torch"],
    "18_hugging_face_trainer.py": ["accelerate", "torch", "transformers"],
    "19_accelerate.py": ["accelerate", "torch"],
    "20_lightning.py": ["lightning", "torch"],
    "21_ray_jax.py": ["ray", "orbax"],
    "digits_tfds.py": ["tensorflow_datasets"],
}
LOOK_FOR_TORCHVISION = {"18_hugging_face_trainer.py", "20_lightning.py"}
# Those that start a cluster, or take long for what they import or train.
SLOW = {
    "07_dataloader_guide.py",
    "09_flax_checkpoint.py",
    "10_four_loaders.py",
    "11_pytorch.py",
    "12_keras.py",
    "14_many_hosts.py",
    "16_torch_ranks.py",
    "17_ray_train.py",
    "19_accelerate.py",
    "21_ray_jax.py",
    *LOOK_FOR_TORCHVISION,
}
# What makes others short: then they do not come to the end that they promise of accuracy.
SHORT = {"train_digits.py": ["--epochs", "2"]}
# Grain programs, and arguments for Grain: its batches depend on the number of its workers.
FOR_GRAIN = {
    "07_dataloader_guide.py": [],
    "08_cifar_source.py": ["--workers", "0"],
}


def run(path: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    way = ["-m", "tests.frameworks.no_torchvision"] if path.name in LOOK_FOR_TORCHVISION else []
    done = subprocess.run(
        [sys.executable, *way, str(path), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=ENVIRONMENT,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def with_grain(path: Path, folder: Path) -> Path:
    """The same program, with one line changed back."""
    changed, count = re.subn(
        r"^import bushel(\.python)? as grain$",
        # Grain starts its workers only in programs whose command line absl has read.
        r"import absl.flags; absl.flags.FLAGS(['x'])\nimport grain\1 as grain",
        path.read_text(),
        flags=re.MULTILINE,
    )
    assert count == 1
    assert not re.search(r"\bbushel\b", changed)
    copy = folder / path.name
    copy.write_text(changed)
    return copy


def test_there_are_examples() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert len(list(EXAMPLES.glob("[0-9]*.py"))) >= 5
    assert names >= {*PROMISES, *LEAST_ACCURACY, *NEEDS, *FOR_GRAIN}


@every_example
def test_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.name in SLOW:
        if not THOROUGH:
            pytest.skip("takes long; `make test-all` runs it")
        monkeypatch.setitem(ENVIRONMENT, "HOME", str(tmp_path))  # Ray keeps a token there.
    for module in NEEDS.get(path.name, []):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{path.name} needs {module}")
    # What one process of an example has compiled, the others need not.
    monkeypatch.setitem(ENVIRONMENT, "JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setitem(ENVIRONMENT, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    short = [] if THOROUGH else SHORT.get(path.name, [])
    done = run(path, tmp_path, *short)
    assert "Traceback" not in done.stderr
    if path.name[0].isdigit():
        assert done.stdout.strip()
    assert "DIFFERENT" not in done.stdout
    for words in PROMISES.get(path.name, []):
        assert words in done.stdout
    if not short and (least := LEAST_ACCURACY.get(path.name)):
        accuracies = [float(number) for number in re.findall(r"(\d+\.\d\d)%", done.stdout)]
        assert accuracies and min(accuracies) >= least, done.stdout
    if path.name in FOR_GRAIN:
        kept = (KEPT / path.name).with_suffix(".txt").read_text()
        # Other versions of what draws and trains may print other numbers, with either library.
        if THOROUGH or not kept or not done.stdout.startswith(kept):
            oracle = run(with_grain(path, tmp_path), tmp_path, *FOR_GRAIN[path.name])
            assert oracle.stdout and done.stdout.startswith(oracle.stdout)


def test_numbered_ones_are_short() -> None:
    # The guides are whole programs; what comes before them shows one thing each.
    for path in EXAMPLES.glob("[0-9]*.py"):
        limit = 160 if path.name in NEEDS else 80
        assert len(path.read_text().splitlines()) < limit, path
