"""Trains a small classifier, is killed half-way, and resumes to the identical end.

    python examples/train_digits.py                         the demonstration
    python examples/train_digits.py --checkpoints runs/one  a single run: interrupt it with
                                                            Ctrl-C, start it again, it goes on
    python examples/train_digits.py --fashion-mnist FOLDER  clothes instead of digits

The pictures are the handwritten digits that come with scikit-learn, or Fashion-MNIST from its
four IDX files. Nothing is downloaded.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the same bits on every machine of a kind

import jax
import jax.numpy as jnp
import numpy as np
from idx_files import IdxError, read_split

import bushel as grain

BATCH_SIZE = 64
LEARNING_RATE = 0.05
SEED = 7
REPORTS = 10  # progress lines, and checkpoints, in a run


# --- the data -----------------------------------------------------------------------------


def load_pictures(fashion_mnist):
    """Gives training and test pictures, each as a dict of arrays of equal length."""
    if fashion_mnist:
        return tuple(columns(*read_split(fashion_mnist, split)) for split in ("train", "test"))
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images * 15).astype(np.uint8)
    held_out = np.arange(len(images)) % 5 == 0
    return (
        columns(images[~held_out], digits.target[~held_out]),
        columns(images[held_out], digits.target[held_out]),
    )


def columns(images, labels):
    # A rim of one pixel gives the random crop below some room to move.
    return {
        "id": np.arange(len(images)),
        "image": np.pad(images, ((0, 0), (1, 1), (1, 1))),
        "label": labels.astype(np.int32),
    }


def crop(record, top, left):
    image = record["image"]
    bottom, right = top + image.shape[-2] - 2, left + image.shape[-1] - 2
    return record | {"image": image[..., top:bottom, left:right]}


def random_crop(record, rng):
    top, left = rng.integers(0, 3, size=2)
    return crop(record, top, left)


def to_float(batch):
    return batch | {"image": batch["image"].astype(np.float32) / 255}


def training_batches(pictures, epochs):
    return (
        grain.MapDataset.source(pictures)
        .seed(SEED)
        .shuffle()  # over all records, in another order each epoch
        .repeat(epochs)
        .random_map(random_crop)  # one record, and a random generator of its own
        .batch(BATCH_SIZE, drop_remainder=True)
        .map(to_float)  # after batch: all records of the batch at once
    )


# --- the model ----------------------------------------------------------------------------


def new_model(pixels):
    rng = np.random.default_rng(SEED)
    weights = {}
    for number, (rows, cols) in enumerate(((pixels, 256), (256, 256), (256, 10)), start=1):
        weights[f"w{number}"] = rng.normal(0, (2 / rows) ** 0.5, (rows, cols)).astype(np.float32)
        weights[f"b{number}"] = np.zeros(cols, np.float32)
    return {"weights": weights, "momentum": jax.tree.map(np.zeros_like, weights)}


def logits(weights, images):
    x = images.reshape(len(images), -1)
    x = jax.nn.relu(x @ weights["w1"] + weights["b1"])
    x = jax.nn.relu(x @ weights["w2"] + weights["b2"])
    return x @ weights["w3"] + weights["b3"]


def loss(weights, images, labels):
    log_p = jax.nn.log_softmax(logits(weights, images))
    return -jnp.take_along_axis(log_p, labels[:, None], axis=1).mean()


@jax.jit
def train_step(model, images, labels, rate):
    value, gradient = jax.value_and_grad(loss)(model["weights"], images, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, model["momentum"], gradient)
    weights = jax.tree.map(lambda w, m: w - rate * m, model["weights"], momentum)
    return {"weights": weights, "momentum": momentum}, value


@jax.jit
def accuracy(weights, images, labels):
    return (logits(weights, images).argmax(axis=1) == labels).mean()


# --- checkpoints --------------------------------------------------------------------------


def save_checkpoint(folder, model, progress):
    """Writes a checkpoint under another name and renames it: all of it is there, or nothing."""
    draft = folder / "draft"
    draft.mkdir(parents=True, exist_ok=True)
    flat = {f"{part}/{name}": a for part, arrays in model.items() for name, a in arrays.items()}
    np.savez(draft / "model.npz", **flat)
    (draft / "progress.json").write_text(json.dumps(progress))
    older = list(folder.glob("step-*"))
    draft.rename(folder / f"step-{progress['step']:08}")
    for checkpoint in older:
        shutil.rmtree(checkpoint)


def load_checkpoint(folder):
    """Gives the latest model and its progress, or None when there is no checkpoint yet."""
    checkpoints = sorted(folder.glob("step-*"))
    if not checkpoints:
        return None
    model = {"weights": {}, "momentum": {}}
    with np.load(checkpoints[-1] / "model.npz") as arrays:
        for key in arrays:
            part, name = key.split("/")
            model[part][name] = arrays[key]
    return model, json.loads((checkpoints[-1] / "progress.json").read_text())


# --- training -----------------------------------------------------------------------------


def train(pictures, test_pictures, epochs, folder, die_at=None):
    """Trains to the end, from the latest checkpoint in `folder` if there is one."""
    dataset = training_batches(pictures, epochs)
    batches = iter(dataset.to_iter_dataset())
    steps = len(dataset)
    test = to_float(crop(test_pictures, 1, 1))

    step, seen, model = 0, "", new_model(test["image"][0].size)
    if checkpoint := load_checkpoint(folder):
        model, progress = checkpoint
        step, seen = progress["step"], progress["seen"]
        batches.set_state(progress["input"])

    # Compiled before the clock starts.
    train_step(model, test["image"][:BATCH_SIZE], test["label"][:BATCH_SIZE], 0.0)
    right = accuracy(model["weights"], test["image"], test["label"])

    interrupts = []  # Ctrl-C is granted when the step is complete
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    report_every = -(-steps // REPORTS)
    meter = Meter(step, steps)
    while step < steps:
        with meter.reading():
            batch = next(batches)
        rate = LEARNING_RATE * (1 - step / steps)
        model, loss_now = train_step(model, batch["image"], batch["label"], rate)
        seen = digest(batch, seen.encode())  # of this batch and all those before it
        step += 1
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)  # no warning, no cleaning up
        leave = step == steps or bool(interrupts)
        if leave or step % report_every == 0:
            right = accuracy(model["weights"], test["image"], test["label"])
            meter.report(step, loss_now, right)
            progress = {"step": step, "seen": seen, "input": batches.get_state()}
            save_checkpoint(folder, model, progress)
        if leave:
            break
    meter.close()
    return {
        "complete": step == steps,
        "seen": seen,
        "weights": digest(model["weights"]),
        "accuracy": f"{right:.2%}",
    }


def digest(tree, start=b""):
    """Sums up every byte of every array in a tree in 16 hexadecimal digits."""
    total = hashlib.blake2b(start, digest_size=8)
    for leaf in jax.tree.leaves(tree):
        total.update(np.ascontiguousarray(leaf))
    return total.hexdigest()


class Meter:
    """Shows how a run is doing: one line that moves in a terminal, several in a log."""

    def __init__(self, step, steps):
        self.first = self.last = step
        self.steps = steps
        self.reading_s = 0.0
        self.started = time.perf_counter()
        self.in_place = sys.stdout.isatty()

    @contextlib.contextmanager
    def reading(self):
        since = time.perf_counter()
        yield
        self.reading_s += time.perf_counter() - since

    def report(self, step, loss_now, right):
        self.last = step
        bar = "#" * (10 * step // self.steps)
        rate = self.records() / (time.perf_counter() - self.started)
        line = (
            f"   step {step:>{len(str(self.steps))}}/{self.steps} [{bar:.<10}]"
            f"  loss {loss_now:.3f}  accuracy {right:.1%}  {rate:7,.0f} records/s"
        )
        print(f"\r{line}" if self.in_place else line, end="" if self.in_place else None, flush=True)

    def close(self):
        if self.in_place:
            print()
        seconds = time.perf_counter() - self.started
        share = self.reading_s / seconds
        print(f"   {self.records():,} records in {seconds:.1f} s, {share:.0%} of it reading them")

    def records(self):
        return (self.last - self.first) * BATCH_SIZE


# --- the demonstration --------------------------------------------------------------------


def demonstrate(steps, arguments):
    """Runs the training three times, each in a process of its own, and compares the ends."""

    def run(folder, *more):
        command = [sys.executable, __file__, "--checkpoints", str(folder), *arguments, *more]
        return subprocess.run(command, check=False).returncode

    def outcome(folder):
        return json.loads((folder / "outcome.json").read_text())

    with tempfile.TemporaryDirectory() as scratch:
        whole, broken = Path(scratch, "whole"), Path(scratch, "broken")
        half_way = steps * 11 // 20  # between two checkpoints, so that some work is lost
        print("1. From beginning to end, without interruption")
        if code := run(whole):
            return code
        print(f"\n2. The same again, killed at step {half_way}")
        if (code := run(broken, "--die-at", str(half_way))) != -signal.SIGKILL:
            return code or 1
        _, progress = load_checkpoint(broken)
        print("\n" * sys.stdout.isatty() + "   killed;", end=" ")
        size = len(json.dumps(progress["input"]))
        print(f"on disk is step {progress['step']}, with {size} bytes of JSON for the input")
        print(f"\n3. A new process resumes at step {progress['step']}")
        if code := run(broken):
            return code

        one, other = outcome(whole), outcome(broken)
        print(f"\n{'':38}  {'uninterrupted':16}  resumed")
        for name, key in (
            (f"every byte of {steps:,} batches, in order", "seen"),
            ("every byte of the trained weights", "weights"),
            ("accuracy on the test pictures", "accuracy"),
        ):
            verdict = "identical" if one[key] == other[key] else "DIFFERENT"
            print(f"{name:38}  {one[key]:16}  {other[key]:16}  {verdict}")
        if one != other:
            print("\nThe two runs differ, and they should not.")
            return 1
        print("\nThe interrupted run came to the identical end.")
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--fashion-mnist", type=Path, metavar="FOLDER", help="where its four IDX files are")
    add("--epochs", type=int, metavar="N", help="by default 60 for digits, 3 for Fashion-MNIST")
    add("--checkpoints", type=Path, metavar="FOLDER", help="a single run, saved and resumed here")
    add("--die-at", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # parent and children speak in turn, in a log too
    if options.epochs is None:
        options.epochs = 3 if options.fashion_mnist else 60
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, and is {options.epochs}")
    try:
        pictures, test_pictures = load_pictures(options.fashion_mnist)
    except IdxError as error:
        parser.error(str(error))

    if options.checkpoints:
        folder = options.checkpoints
        outcome = train(pictures, test_pictures, options.epochs, folder, options.die_at)
        if not outcome["complete"]:
            print("   stopped; the same command goes on from here")
            return 130
        (folder / "outcome.json").write_text(json.dumps(outcome))
        return 0

    name = "Fashion-MNIST" if options.fashion_mnist else "handwritten digits"
    sizes = f"{len(pictures['id']):,} training and {len(test_pictures['id']):,} test pictures"
    steps = len(training_batches(pictures, options.epochs))
    print(f"{name}: {sizes}, {options.epochs} epochs in {steps:,} steps of {BATCH_SIZE} records\n")
    return demonstrate(steps, sys.argv[1:])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
