"""Keras 3: `model.fit` over a dataset by position, and over the stream of a DataLoader."""

import contextlib
import os
import tempfile

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import keras
import numpy as np
from pictures import Pictures, load_pictures

import bushel as grain

BATCH_SIZE, EPOCHS = 32, 6


def to_pair(record):
    """What Keras trains on: input and target."""
    return record["image"].astype(np.float32) / 255, record["label"].astype(np.int32)


def add_noise(record, rng):
    return record | {"image": record["image"] + rng.normal(0, 8, record["image"].shape)}


def training_data():
    images, labels = load_pictures()["train"]
    dataset = grain.MapDataset.source({"image": images, "label": labels}).seed(7).shuffle()
    return dataset.random_map(add_noise).map(to_pair).batch(BATCH_SIZE, drop_remainder=True)


def new_model():
    first = keras.initializers.GlorotUniform(seed=0)  # the same weights in every new model
    hidden = keras.layers.Dense(64, activation="relu", kernel_initializer=first)
    out = keras.layers.Dense(10, kernel_initializer=first)
    model = keras.Sequential([keras.layers.Flatten(), hidden, out])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    return model


class Stop(keras.callbacks.Callback):
    """Stands for a machine that is taken away in the middle of an epoch."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def by_position():
    """Trains on a MapDataset; stops in the middle of an epoch, and goes on to the same end."""
    whole = new_model()
    whole.fit(grain.keras.dataset(training_data()), epochs=EPOCHS, verbose=0)

    with tempfile.TemporaryDirectory() as folder:
        data = grain.keras.dataset(training_data())
        checkpoint = grain.keras.Checkpoint(folder, data, every=10)
        stop = Stop(after=int(2.6 * (data.num_batches or 0)))
        with contextlib.suppress(KeyboardInterrupt):
            new_model().fit(data, epochs=EPOCHS, verbose=0, callbacks=[checkpoint, stop])

        model, data = new_model(), grain.keras.dataset(training_data())
        checkpoint = grain.keras.Checkpoint(folder, data, every=10)
        start = checkpoint.restore(model)
        model.fit(data, initial_epoch=start, epochs=EPOCHS, verbose=0, callbacks=[checkpoint])
    for one, other in zip(whole.get_weights(), model.get_weights(), strict=True):
        assert np.array_equal(one, other)
    print(f"went on within epoch {start} of {EPOCHS}: the same weights, bit for bit")
    return whole


class ToPair(grain.transforms.Map):
    def map(self, record):
        return to_pair(record)


def loader(split, num_epochs, shuffle=False, workers=0):
    source = Pictures(split)
    return grain.DataLoader(
        data_source=source,
        sampler=grain.samplers.IndexSampler(
            len(source), grain.sharding.NoSharding(), shuffle, num_epochs, seed=7
        ),
        operations=[ToPair(), grain.transforms.Batch(BATCH_SIZE)],
        worker_count=workers,
    )


def as_stream():
    """Trains on a DataLoader with a worker."""
    model = new_model()
    model.fit(grain.keras.dataset(loader("train", EPOCHS, shuffle=True, workers=1)), verbose=0)
    return model


def main():
    for name, model in (("by position", by_position()), ("as a stream", as_stream())):
        _, accuracy = model.evaluate(grain.keras.dataset(loader("test", num_epochs=1)), verbose=0)
        print(f"trained {name}: accuracy {accuracy:.2%}")


if __name__ == "__main__":
    main()
