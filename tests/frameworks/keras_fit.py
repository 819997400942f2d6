"""A program that trains with Keras and the backend in `KERAS_BACKEND`, and prints what came of it.

Its arguments say on which of `DATA`; and "all" that Keras also predicts, evaluates, and takes
datasets as they are, each of which it compiles for. The last line is JSON.
"""

import contextlib
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np

import bushel
from bushel import MapDataset
from bushel.errors import PlanError

warnings.simplefilter("error", UserWarning)  # That data ran out, say.

ROWS = np.random.default_rng(0).normal(size=(70, 4)).astype(np.float32)


def pairs() -> Any:
    ds = MapDataset.source(ROWS).seed(1).shuffle()
    return ds.map(lambda row: (row[:3], row[3:])).batch(16)


def as_loader() -> Any:
    return bushel.DataLoader(
        data_source=ROWS,
        sampler=bushel.samplers.IndexSampler(70, shuffle=True, seed=5, num_epochs=1),
        operations=[Split(), bushel.transforms.Batch(16)],
    )


class Split(bushel.transforms.Map):
    def map(self, row: Any) -> Any:
        return row[:3], row[3:]


DATA: dict[str, tuple[Any, int | None]] = {
    "map": (pairs, None),
    "endless stream": (lambda: pairs().repeat().to_iter_dataset(), 7),
    "DataLoader": (as_loader, None),
}


def new_model() -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    return model


class Interrupt(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends a training after some batches, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def resumed(make: Any, steps: int | None, folder: Path) -> tuple[Any, list[str]]:
    data = bushel.keras.dataset(make(), steps_per_epoch=steps)
    callbacks = [bushel.keras.Checkpoint(folder, data, every=4), Interrupt(12 if steps else 9)]
    with contextlib.suppress(KeyboardInterrupt):
        new_model().fit(data, epochs=3, verbose=0, callbacks=callbacks)
    names = [path.name for path in folder.iterdir()]
    data = bushel.keras.dataset(make(), steps_per_epoch=steps)
    checkpoint = bushel.keras.Checkpoint(folder, data, every=4)
    model = new_model()
    start = checkpoint.restore(model)
    model.fit(data, epochs=3, initial_epoch=start, verbose=0, callbacks=[checkpoint])
    return model, names


def as_they_are(names: list[str]) -> dict[str, Any]:
    """What Keras makes of datasets themselves, before and after it is told of them."""
    told: dict[str, Any] = {}
    try:
        new_model().fit(pairs(), verbose=0)
    except ValueError as error:
        told["before"] = str(error)[:40]
    bushel.keras.accept_datasets()
    bushel.keras.accept_datasets()
    for name in names:
        make, steps = DATA[name]
        model = new_model()
        options = {} if steps is None else {"steps_per_epoch": steps}
        history = model.fit(make(), epochs=3, verbose=0, validation_data=pairs(), **options)
        told[name] = history.history["loss"]
        assert len(history.history["val_loss"]) == 3
    told["evaluated"] = model.evaluate(pairs(), verbose=0)
    inputs = MapDataset.source(ROWS).map(lambda row: row[:3]).batch(16)
    told["predicted"] = list(model.predict(inputs, verbose=0).shape)
    told["arrays"] = model.evaluate(ROWS[:, :3], ROWS[:, 3:], verbose=0)
    try:
        model.fit(pairs(), class_weight={0: 1.0}, verbose=0)
    except PlanError as error:
        told["refused"] = str(error)
    return told


def main(names: list[str], is_all: bool) -> None:
    told: dict[str, Any] = {"backend": keras.backend.backend()}
    for name in names:
        make, steps = DATA[name]
        whole = new_model()
        data = bushel.keras.dataset(make(), steps_per_epoch=steps)
        losses = whole.fit(data, epochs=3, verbose=0).history["loss"]
        with tempfile.TemporaryDirectory() as folder:
            model, saved = resumed(make, steps, Path(folder))
        weights = zip(whole.get_weights(), model.get_weights(), strict=True)
        told[name] = {
            "batches": data.num_batches,
            "losses": losses,
            "checkpoints": saved,
            "equal": all(np.array_equal(one, other) for one, other in weights),
        }
    if is_all:
        told |= all_else(names, whole)
    print(json.dumps(told))


def all_else(names: list[str], whole: Any) -> dict[str, Any]:
    """What comes of a model that is trained, and of datasets as they are."""
    told: dict[str, Any] = {}
    inputs = MapDataset.source(ROWS).map(lambda row: row[:3]).batch(16)
    predicted = whole.predict(bushel.keras.dataset(inputs), verbose=0)
    told["predicted"] = bool(np.allclose(predicted, whole.predict(ROWS[:, :3], verbose=0)))
    data = bushel.keras.dataset(pairs(), same_each_epoch=True)
    told["evaluated"] = [whole.evaluate(data, verbose=0) for _ in range(2)]
    told["as they are"] = as_they_are(names)
    told["directly"] = float(whole.evaluate(ROWS[:, :3], ROWS[:, 3:], verbose=0))
    return told


if __name__ == "__main__":
    main([name for name in sys.argv[1:] if name != "all"], "all" in sys.argv)
