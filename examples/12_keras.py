"""Keras 3: `model.fit` over a dataset by position, and over the stream of a DataLoader."""

import os
import tempfile
from pathlib import Path

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


class Batches(keras.utils.PyDataset):
    """Batches by number, which Keras asks for in turn.

    The numbers of a second epoch go on where those of the first one end: another order, and
    other random numbers. So the number of an epoch is all that there is to remember.
    """

    def __init__(self, dataset, epoch=0):
        super().__init__()
        self.dataset, self.epoch = dataset, epoch

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[self.epoch * len(self.dataset) + index]

    def on_epoch_end(self):
        self.epoch += 1


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


def by_position():
    """Trains on a MapDataset; stops half-way, and goes on to the same end."""
    dataset, half = training_data(), EPOCHS // 2
    whole = new_model()
    whole.fit(Batches(dataset), epochs=EPOCHS, shuffle=False, verbose=0)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "half_way.keras")
        model = new_model()
        model.fit(Batches(dataset), epochs=half, shuffle=False, verbose=0)
        model.save(path)
        model = keras.models.load_model(path)
    model.fit(
        Batches(dataset, epoch=half), initial_epoch=half, epochs=EPOCHS, shuffle=False, verbose=0
    )
    for one, other in zip(whole.get_weights(), model.get_weights(), strict=True):
        assert np.array_equal(one, other)
    print(f"epochs {half} to {EPOCHS} from a file: the same weights, bit for bit")
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
    """Trains on a DataLoader with a worker; Keras takes an iterable as a generator."""
    model = new_model()
    steps = EPOCHS * len(Pictures("train")) // BATCH_SIZE
    batches = (batch for batch in loader("train", EPOCHS, shuffle=True, workers=1))
    model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0)
    return model


def main():
    for name, model in (("by position", by_position()), ("as a stream", as_stream())):
        batches = (batch for batch in loader("test", num_epochs=1))
        steps = -(-len(Pictures("test")) // BATCH_SIZE)
        _, accuracy = model.evaluate(batches, steps=steps, verbose=0)
        print(f"trained {name}: accuracy {accuracy:.2%}")


if __name__ == "__main__":
    main()
