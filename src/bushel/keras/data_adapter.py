"""Datasets for Keras 3, and checkpoints of model and data: the only file that imports Keras."""

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from bushel.core.arguments import whole
from bushel.dataset import IterDataset, MapDataset
from bushel.errors import PlanError, StateError
from bushel.files.latest_folder import LatestFolder
from bushel.keras.passes import KerasPasses
from bushel.loader.epochs import Epochs
from bushel.loader.loader import DataLoader

try:
    # Not within a function, as optional dependencies are elsewhere: the classes need their bases.
    import keras
    from keras.src.trainers import data_adapters
    from keras.src.trainers.data_adapters import data_adapter_utils
    from keras.src.trainers.data_adapters.data_adapter import DataAdapter
except ImportError as error:
    raise ImportError('`bushel.keras` needs Keras 3: pip install "bushel[keras]".') from error


def dataset(
    data: Any, *, steps_per_epoch: int | None = None, same_each_epoch: bool = False
) -> "KerasDataset":
    """Makes what `fit`, `evaluate` and `predict` of Keras 3 take, with any backend.

    A `MapDataset` goes on with its next epoch in each epoch of `fit`: another order, other
    random numbers. A stream, or a `DataLoader`, is the same in each. With `steps_per_epoch` an
    epoch is so many batches, and the next goes on where it ended. (Give it here, not to `fit`.)

    >>> import numpy as np
    >>> from bushel import MapDataset
    >>> columns = {"x": np.ones((64, 3), np.float32), "y": np.zeros(64, np.float32)}
    >>> ds = MapDataset.source(columns).shuffle(seed=0).map(lambda row: (row["x"], row["y"]))
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(dataset(ds.batch(16)), epochs=2, verbose=0)
    >>> sorted(history.history), len(history.epoch)
    (['loss'], 2)

    Args:
      data: a `MapDataset`, an `IterDataset` or a `DataLoader` of batches: inputs, or tuples of
        inputs, targets, and weights if there are any. (Keras ignores `class_weight` and
        `shuffle` here: the data says both.)
      same_each_epoch: gives the same elements in each pass, as one wants them of data for
        validation with random steps.
    """
    return KerasDataset(Epochs(data, steps_per_epoch), same_each_epoch)


def accept_datasets() -> None:
    """Has Keras take datasets of bushel's as they are, from now on: `model.fit(ds)`.

    It does what `dataset(ds)` does, in `fit`, `evaluate`, `predict` and `validation_data`, with the
    `steps_per_epoch` that `fit` is given. Keras has no place where such things are registered: this
    puts a function around the one of Keras that looks at data. Where a version of Keras
    has none, it is an error, and `dataset(ds)` works all the same.
    """
    adapter_of = getattr(data_adapters, "get_data_adapter", None)
    if adapter_of is None or "steps_per_epoch" not in inspect.signature(adapter_of).parameters:
        raise PlanError(
            f"Keras {keras.__version__} handles data in a way that this version of bushel does "
            "not know. Write `model.fit(bushel.keras.dataset(ds))`, which does not depend on it."
        )
    if hasattr(adapter_of, "takes_bushel"):
        return

    @functools.wraps(adapter_of)
    def with_ours(x: Any, y: Any = None, **options: Any) -> Any:
        if not isinstance(x, (MapDataset, IterDataset, DataLoader)):
            return adapter_of(x, y, **options)
        given = {"y": y, **{name: options.get(name) for name in ("sample_weight", "class_weight")}}
        for name, value in given.items():
            if value is not None:
                raise PlanError(
                    f"`{name}` is given beside a dataset: elements of the dataset are tuples of "
                    "inputs, targets, and weights if there are any."
                )
        return dataset(x, steps_per_epoch=options.get("steps_per_epoch"))

    with_ours.takes_bushel = True  # type: ignore[attr-defined]
    data_adapters.get_data_adapter = with_ours


class KerasDataset(DataAdapter):  # type: ignore[misc]
    """Batches for Keras; see `dataset`."""

    def __init__(self, epochs: Epochs, same_each_epoch: bool = False) -> None:
        super().__init__()
        self._epochs = epochs
        self._passes = KerasPasses(epochs, same_each_epoch)

    def __iter__(self) -> Iterator[Any]:
        """Makes a pass, for what else takes an iterable (`Normalization.adapt`)."""
        return self._passes.elements()

    def get_state(self) -> dict[str, Any]:
        """The position between two epochs, as a dict of plain values; see `Checkpoint`."""
        return self._passes.state()

    def set_state(self, state: Any, strict: bool = False) -> None:
        """Has the next epoch begin, or go on, where a state says."""
        self._passes.restore(state, strict)

    def close(self) -> None:
        """Stops threads and worker processes; the next pass starts its own."""
        self._epochs.close()

    def first_batch(self) -> Any:
        """The first batch of the data, wherever a training is in it."""
        return self._first(1)[0]

    def _first(self, count: int) -> list[Any]:
        with iter(self._epochs.data) as iterator:
            found = list(islice(iterator, count))
        if not found:
            raise PlanError("there are no batches in this dataset, so Keras cannot train on it.")
        return found

    # What Keras asks of its input.

    def get_numpy_iterator(self) -> Any:
        """Makes a pass of numpy arrays."""
        return data_adapter_utils.get_numpy_iterator(self._passes.elements())

    def get_jax_iterator(self) -> Any:
        """Makes a pass of what JAX takes."""
        return data_adapter_utils.get_jax_iterator(self._passes.elements())

    def get_torch_dataloader(self) -> Any:
        """Makes a pass of tensors of torch."""
        return data_adapter_utils.get_torch_dataloader(self._passes.elements())

    def get_tf_dataset(self) -> Any:
        """Makes a `tf.data` dataset, each iterator of which is a pass."""
        from tensorflow import data as tf_data

        spec = data_adapter_utils.get_tensor_spec(
            [keras.tree.lists_to_tuples(batch) for batch in self._first(2)]
        )

        def elements() -> Iterator[Any]:
            return map(keras.tree.lists_to_tuples, self._passes.elements())

        # (bushel reads ahead; this is about the copy into TensorFlow's memory.)
        return tf_data.Dataset.from_generator(elements, output_signature=spec).prefetch(1)

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch, where that is known without reading."""
        return self._epochs.length

    @property
    def batch_size(self) -> None:
        """Not known before a batch is made."""
        return None

    @property
    def has_partial_batch(self) -> None:
        """Not known before."""
        return None

    @property
    def partial_batch_size(self) -> None:
        """Not known before."""
        return None

    def on_epoch_end(self) -> None:
        """Takes note that Keras is done with a pass."""
        self._passes.epoch_ended()


# Ends an epoch that is shorter than Keras was told, since it goes on in its middle. (Where the data
# ends instead, TensorFlow counts another step of the optimizer, and Keras warns.) Anything else in
# the same place is somebody's wish to end the training.
_END_OF_REST: Any = object()


class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves model, optimizer and data together, so that a training goes on after any batch.

    The folder has the latest checkpoint, written as a whole or not at all. `restore` loads it
    and tells the epoch to go on with:

        data = bushel.keras.dataset(ds)
        checkpoint = bushel.keras.Checkpoint("folder", data, every=500)
        start = checkpoint.restore(model)
        model.fit(data, epochs=10, initial_epoch=start, callbacks=[checkpoint])

    The epoch in the middle of which a training stopped has its remaining batches, and metrics
    of that epoch are of these alone.

    Args:
      every: "epoch", or after how many batches to save (at the end of an epoch as well).
    """

    def __init__(
        self, folder: "str | os.PathLike[str]", data: KerasDataset, every: int | str = "epoch"
    ) -> None:
        super().__init__()
        if not isinstance(data, KerasDataset):
            raise TypeError(
                "`data` must be what `bushel.keras.dataset(...)` returned and `fit` is given, and "
                f"is a {type(data).__name__}."
            )
        if every != "epoch" and (isinstance(every, str) or whole(every, "every") <= 0):
            raise PlanError(f"`every` must be 'epoch' or a number of batches, and is {every!r}.")
        if every != "epoch" and data.num_batches is None:
            raise PlanError(
                "in the middle of an epoch Keras can only go on if it is known how many batches an "
                "epoch has. Write `bushel.keras.dataset(ds, steps_per_epoch=...)`, or "
                "`every='epoch'`."
            )
        self._kept, self._data = LatestFolder(Path(folder), "checkpoint-"), data
        self._every = None if every == "epoch" else whole(every, "every")
        self._epoch = self._trained = self._unsaved = 0

    def restore(self, model: Any, strict: bool = False) -> int:
        """Loads the latest checkpoint, if there is one; returns the epoch to begin with.

        A model that is not built yet is built by the first batch of the data.
        """
        found = self._kept.find()
        if found is None:
            return 0
        try:
            saved = json.loads((found / "data.json").read_text())
            epoch, state = int(saved["epoch"]), saved["data"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(f"{found} is no checkpoint of model and data: {error}.") from None
        if not model.built:
            inputs, _, _ = keras.utils.unpack_x_y_sample_weight(self._data.first_batch())
            model(inputs)
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        self._data.set_state(state, strict)
        model.load_weights(found / "model.weights.h5")
        return epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Has the data begin where it stood before Keras looked at it."""
        steps = self.params.get("steps")
        if steps not in (None, self._data.num_batches):
            raise PlanError(
                f"`fit` makes epochs of {steps} batches of data whose epochs have "
                f"{self._data.num_batches}: give `steps_per_epoch` to `bushel.keras.dataset` "
                "instead, which then knows where each epoch begins."
            )
        self._data._passes.training_begins()
        self._data._passes.watched = self._every is not None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Counts."""
        self._epoch, self._trained = epoch, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves after so many batches."""
        self._unsaved += batch + 1 - self._trained
        self._trained = batch + 1
        if self._trained == self._data._passes.rest:
            self.model.stop_training = _END_OF_REST
        if self._every is not None and self._unsaved >= self._every:
            self._save(self._epoch, self._data._passes.state_after(self._trained))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves at the end of an epoch."""
        if self.model.stop_training is _END_OF_REST:
            self.model.stop_training = False  # Only this epoch is over.
            self._data.on_epoch_end()
        self._data._passes.was_trained()
        self._save(epoch + 1, self._data.get_state())

    def _save(self, epoch: int, state: dict[str, Any]) -> None:
        self._unsaved = 0
        name = f"checkpoint-{state['epoch']:06}-{state['step']:09}"
        with self._kept.written(name) as new:
            # (Keras attaches the state of a JAX training to the model when it is asked for here.)
            self.model.save_weights(new / "model.weights.h5")
            (new / "data.json").write_text(json.dumps({"epoch": epoch, "data": state}))


def on_cpu(layer: Any) -> Callable[[Any], Any]:
    """Makes a function for `map` of a Keras layer: run on the CPU, from arrays to arrays.

    >>> import numpy as np
    >>> from bushel import MapDataset
    >>> ds = MapDataset.source(np.full((2, 3), 255.0, np.float32))
    >>> ds.map(on_cpu(keras.layers.Rescaling(1 / 255)))[0]
    array([1., 1., 1.], dtype=float32)

    Layers that draw random numbers are refused: what they make of an element would depend on
    how many they have seen before. They belong into the model, or `random_map` in their place.
    """
    if not callable(layer):
        raise TypeError(f"`on_cpu` takes a layer, and got {layer!r}.")
    for part in getattr(layer, "_flatten_layers", lambda: [layer])():
        if any(isinstance(value, keras.random.SeedGenerator) for value in vars(part).values()):
            raise PlanError(
                f"the layer {getattr(part, 'name', part)!r} draws its own random numbers, so its "
                "result for an element depends on the number of elements before: a resumed "
                "training would see other data. Put it into the model, or write the step with "
                "`random_map`, whose generator belongs to the element."
            )

    return _OnCpu(layer)


class _OnCpu:
    def __init__(self, layer: Any) -> None:
        self._layer = layer

    @property
    def __name__(self) -> str:
        return f"on_cpu({self._layer.name})"

    def __call__(self, element: Any) -> Any:
        with keras.device("cpu"):
            made = self._layer(element)
            return keras.tree.map_structure(keras.ops.convert_to_numpy, made)
