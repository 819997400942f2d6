"""`bushel.keras`: real trainings with each backend, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bushel
from tests.patience import PATIENCE_SECONDS
from tests.thorough import THOROUGH, slow

ROOT = Path(__file__).parent.parent.parent


def run(backend: str, *arguments: str) -> str:
    paths = os.pathsep.join([str(Path(bushel.__file__).parent.parent), str(ROOT)])
    own = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | own,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# Keras imports what it finds of these, which takes longer than a training of one kind: by default
# it finds those that its backend needs. (What is None cannot be imported.)
FOUND_BY_KERAS = {"matplotlib", "sklearn", "tensorflow", "torch"}
ALONE = """
import runpy, sys
sys.modules |= dict.fromkeys({missing})
runpy.run_module("tests.frameworks.keras_fit", run_name="__main__", alter_sys=True)
"""

# What is trained on, and how many batches of it there are in an epoch.
BATCHES = {"map": 5, "endless stream": 7, "DataLoader": 5}


@pytest.mark.parametrize(
    "backend", ["jax", pytest.param("tensorflow", marks=slow), pytest.param("torch", marks=slow)]
)
def test_a_training_goes_on_after_any_batch(backend: str) -> None:
    kinds = list(BATCHES) if THOROUGH else ["endless stream"]
    more = ["all"] if THOROUGH else []
    missing = set() if THOROUGH else FOUND_BY_KERAS - {backend}
    printed = run(backend, "-c", ALONE.format(missing=sorted(missing)), *kinds, *more)
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert told["backend"] == backend
    for name in kinds:
        assert told[name]["batches"] == BATCHES[name], name
        assert told[name]["equal"], (name, told[name])
        assert len(told[name]["losses"]) == 3 and len(set(told[name]["losses"])) == 3
        if name != "DataLoader":  # In the middle of an epoch, and one checkpoint at a time.
            assert told[name]["checkpoints"] == ["checkpoint-000001-000000004"]
    if not more:
        return
    assert told["predicted"]
    own = told["as they are"]
    assert own["before"].startswith("Unrecognized data type")
    for name in kinds:
        assert own[name] == told[name]["losses"]
    assert own["evaluated"] == pytest.approx(own["arrays"], rel=1e-4)
    assert own["predicted"] == [70, 1] and "`class_weight` is given beside" in own["refused"]
    assert told["evaluated"][0] == told["evaluated"][1] == pytest.approx(told["directly"], rel=1e-4)


MISTAKES = """
import keras, numpy as np, pytest, bushel
from bushel import MapDataset
from bushel.errors import PlanError, StateError
ds = MapDataset.source(np.ones((8, 2), np.float32))
with pytest.raises(TypeError, match="what `bushel.keras.dataset"):
    bushel.keras.Checkpoint("x", ds)
with pytest.raises(PlanError, match="'epoch' or a number"):
    bushel.keras.Checkpoint("x", bushel.keras.dataset(ds), every="day")
filtered = bushel.keras.dataset(ds.filter(lambda x: True))
with pytest.raises(PlanError, match="steps_per_epoch"):
    bushel.keras.Checkpoint("x", filtered, every=2)
data = bushel.keras.dataset(ds.map(lambda x: (x, x[:1])).batch(2))
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
with pytest.raises(PlanError, match="instead, which then knows"):
    model.fit(data, steps_per_epoch=3, verbose=0, callbacks=[bushel.keras.Checkpoint("x", data)])
with pytest.raises(TypeError, match="MapDataset.source"):
    bushel.keras.dataset([1])
with pytest.raises(PlanError, match="draws its own random numbers"):
    bushel.keras.on_cpu(keras.layers.RandomFlip())
with pytest.raises(PlanError, match="dropout"):
    bushel.keras.on_cpu(keras.Sequential([keras.layers.Dropout(0.5, name="dropout")]))
assert np.allclose(ds.map(bushel.keras.on_cpu(keras.layers.Rescaling(2.0)))[0], 2)
import pathlib, tempfile
from PIL import Image
with tempfile.TemporaryDirectory() as folder:
    for number, name in enumerate(["cat", "dog"]):
        pathlib.Path(folder, name).mkdir()
        Image.new("RGB", (8, 6 + number), (9, number, 0)).save(f"{folder}/{name}/1.png")
    source = bushel.open(folder, decode=True)
    resize = bushel.keras.on_cpu(keras.layers.Resizing(4, 4))
    images = MapDataset.source(source)
    images = images.map(lambda record: (resize(record["image"]), record["label"])).batch(2)
    keras_own = keras.utils.image_dataset_from_directory(
        folder, image_size=(4, 4), shuffle=False, verbose=False
    )
    for (image, label), (other, number) in zip(images, keras_own, strict=True):
        assert np.allclose(image, other) and label.tolist() == number.numpy().tolist()
layer = keras.layers.Normalization()
layer.adapt(bushel.keras.dataset(ds.batch(4)))
import doctest
import bushel.keras.data_adapter
tested = doctest.testmod(bushel.keras.data_adapter)
assert tested.attempted > 5 and not tested.failed
print("all of them")
"""


@slow
def test_mistakes_are_explained_and_layers_run_in_a_map() -> None:
    assert "all of them" in run("jax", "-c", MISTAKES)
