"""One small training with four data loaders side by side: accuracy, and where the time goes.

Each loader is used as its own documentation says and reads the pictures in file order, 128 at
a time. bushel comes twice: with a class that gives one record at a time, as the other loaders
have it, and with whole columns. Times are of this machine, now; `--plot FILE` keeps the plot.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import datasets
import digits_tfds
import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
import torch.utils.data
from matplotlib.figure import Figure
from pictures import Pictures, load_pictures

import bushel.python as grain

BATCH_SIZE = 128

# Every loader is a function that begins an epoch: something to iterate over for batches.


def pytorch(columns, folder):
    def collate(records):
        batch = torch.utils.data.default_collate(records)
        return {name: np.asarray(tensor) for name, tensor in batch.items()}

    loader = torch.utils.data.DataLoader(Pictures("train"), BATCH_SIZE, collate_fn=collate)
    return lambda: loader


def tensorflow_datasets(columns, folder):
    digits_tfds.build(folder, file_format="tfrecord")
    dataset = tfds.load("digits", split="train", data_dir=folder)
    batches = dataset.cache().batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    return lambda: tfds.as_numpy(batches)


def hugging_face(columns, folder):
    image = datasets.Array2D(columns["image"].shape[1:], "uint8")
    features = datasets.Features({"image": image, "label": datasets.Value("uint8")})
    dataset = datasets.Dataset.from_dict(columns, features).with_format("numpy", dtype=np.uint8)
    return lambda: dataset.iter(BATCH_SIZE)


def bushel(columns, folder, source=None):
    count = len(columns["label"])
    loader = grain.DataLoader(
        data_source=source or Pictures("train"),
        sampler=grain.SequentialSampler(num_records=count, shard_options=grain.NoSharding()),
        operations=[grain.Batch(BATCH_SIZE)],
    )
    return lambda: loader


def bushel_columns(columns, folder):
    return bushel(columns, folder, source=columns)


def new_weights(pixels):
    rng = np.random.default_rng(0)
    sizes = ((pixels, 128), (128, 10))
    return [jnp.asarray(rng.normal(0, (2 / s[0]) ** 0.5, s).astype(np.float32)) for s in sizes]


def logits(weights, images):
    hidden = images.reshape(len(images), -1).astype(jnp.float32) / 255
    return jax.nn.relu(hidden @ weights[0]) @ weights[1]


@jax.jit
def update(weights, batch):
    def loss(weights):
        log_p = jax.nn.log_softmax(logits(weights, batch["image"]))
        return -jnp.take_along_axis(log_p, batch["label"][:, None].astype(int), axis=1).mean()

    return jax.tree.map(lambda w, g: w - 0.2 * g, weights, jax.grad(loss)(weights))


def milliseconds(work):
    since = time.perf_counter()
    work()
    return 1_000 * (time.perf_counter() - since)


class Measured:
    """A loader, a model that is trained with it, and the fastest epoch of each kind."""

    def __init__(self, epoch, pictures):
        self.epoch, self.pictures = epoch, pictures
        self.weights = new_weights(pictures["test"][0][0].size)
        self.first = milliseconds(self.read)
        self.input = self.training = float("inf")

    def read(self):
        assert sum(len(batch["label"]) for batch in self.epoch()) == len(self.pictures["train"][1])

    def train(self):
        for batch in self.epoch():
            self.weights = update(self.weights, batch)
        jax.block_until_ready(self.weights)

    def measure(self):
        self.input = min(self.input, milliseconds(self.read))
        self.training = min(self.training, milliseconds(self.train))

    def accuracy(self):
        images, labels = self.pictures["test"]
        return float((logits(self.weights, images).argmax(1) == labels).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plot", type=Path, metavar="FILE")
    options, _ = parser.parse_known_args()
    pictures = load_pictures()
    columns = dict(zip(("image", "label"), pictures["train"], strict=True))
    with tempfile.TemporaryDirectory() as folder:
        every = (pytorch, tensorflow_datasets, hugging_face, bushel, bushel_columns)
        rows = {f.__name__: Measured(f(columns, folder), pictures) for f in every}
        for _ in range(60 if len(columns["label"]) < 10_000 else 6):
            for row in rows.values():  # in turn, so that a busy moment of the machine meets all
                row.measure()

        print("milliseconds per epoch   first   input  training  accuracy")
        for name, row in rows.items():
            print(f"{name:22} {row.first:7.1f} {row.input:7.1f}", end="")
            print(f" {row.training:9.1f} {row.accuracy():9.2%}")
        figure = Figure(figsize=(7, 3), layout="constrained")
        axis = figure.subplots()
        axis.barh(list(rows), [row.training for row in rows.values()], label="training")
        axis.barh(list(rows), [row.input for row in rows.values()], label="input alone")
        axis.set_xlabel("milliseconds per epoch")
        axis.legend()
        figure.savefig(options.plot or Path(folder, "plot.png"))
    other = min(row.input for name, row in rows.items() if "bushel" not in name)
    print(f"\nThe fastest other input takes {other / rows['bushel'].input:.1f} times", end=" ")
    print(f"as long as bushel's, {other / rows['bushel_columns'].input:.1f} with columns.")


if __name__ == "__main__":
    main()
