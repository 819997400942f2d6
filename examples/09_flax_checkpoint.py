"""Flax NNX: the model and its input in one Orbax checkpoint, killed half-way, resumed."""

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the same bits on every machine of a kind

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from pictures import Pictures

import bushel.python as grain

STEPS, SAVE_EVERY, KILLED_AT = 200, 50, 120


class Noise(grain.RandomMapTransform):
    def random_map(self, element, rng):
        noise = rng.normal(0, 8, element["image"].shape)
        return element | {"image": element["image"] + noise}


class ToFloat(grain.MapTransform):
    def map(self, element):
        image = element["image"].astype(np.float32) / 255
        return {"image": image.ravel(), "label": np.int32(element["label"])}


def batches(workers):
    source = Pictures("train")
    # No shard options for the sampler: the loader's are the ones that count.
    sampler = grain.IndexSampler(num_records=len(source), shuffle=True, seed=3)
    return iter(
        grain.DataLoader(
            data_source=source,
            sampler=sampler,
            operations=[Noise(), ToFloat(), grain.Batch(batch_size=32, drop_remainder=True)],
            shard_options=grain.ShardByJaxProcess(drop_remainder=True),
            worker_count=workers,
        )
    )


class Classifier(nnx.Module):
    def __init__(self, pixels, *, rngs):
        self.hidden = nnx.Linear(pixels, 64, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(nnx.relu(self.hidden(x))))


def loss(model, batch):
    logits = model(batch["image"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()


@nnx.jit
def train_step(model, optimizer, batch):
    optimizer.update(model, nnx.grad(loss)(model, batch))


def train(folder, workers, killed_at=None):
    """Trains to the end, from the latest checkpoint in `folder` if there is one."""
    data_iter = batches(workers)
    model = Classifier(Pictures("test")[0]["image"].size, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    nodes = {"model": model, "optimizer": optimizer}
    step, seen = 0, hashlib.sha256()
    with ocp.CheckpointManager(folder) as manager:
        if manager.latest_step() is not None:
            step = manager.latest_step()
            wanted = {
                name: ocp.args.StandardRestore(nnx.to_pure_dict(nnx.state(node)))
                for name, node in nodes.items()
            }
            data = grain.PyGrainCheckpointRestore(data_iter)
            restored = manager.restore(step, args=ocp.args.Composite(data=data, **wanted))
            for name, node in nodes.items():
                state = nnx.state(node)
                nnx.replace_by_pure_dict(state, restored[name])
                nnx.update(node, state)
        first = step
        while step < STEPS:
            batch = next(data_iter)
            seen.update(batch["image"])
            train_step(model, optimizer, batch)
            step += 1
            if step % SAVE_EVERY == 0:
                states = {
                    name: ocp.args.StandardSave(nnx.to_pure_dict(nnx.state(node)))
                    for name, node in nodes.items()
                }
                data = grain.PyGrainCheckpointSave(data_iter)
                manager.save(step, args=ocp.args.Composite(data=data, **states))
            if step == killed_at:
                manager.wait_until_finished()
                os.kill(os.getpid(), signal.SIGKILL)  # no warning, no cleaning up
    print(f"steps {first:3} to {STEPS}, last batch {batch['label'][:8]}")
    if first == 0:
        print(f"sha256 of all batches {seen.hexdigest()[:16]}")
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--killed-at", type=int, metavar="STEP")
    parser.add_argument("--folder", type=Path, help="a single run, with its checkpoints here")
    options, _ = parser.parse_known_args()
    if options.folder:
        return train(options.folder.resolve(), options.workers, options.killed_at)

    with tempfile.TemporaryDirectory() as scratch:
        whole, broken = Path(scratch, "whole"), Path(scratch, "broken")
        command = [sys.executable, *sys.argv, "--folder", str(broken), f"--killed-at={KILLED_AT}"]
        with subprocess.Popen(command) as child:
            one = train(whole, options.workers)
        assert child.returncode == -signal.SIGKILL, child.returncode
        print(f"another run was killed at step {KILLED_AT}; this one resumes it")
        other = train(broken, options.workers)

    for a, b in zip(*(jax.tree.leaves(nnx.state(m, nnx.Param)) for m in (one, other)), strict=True):
        assert np.array_equal(a, b)
    test = Pictures("test")
    one.eval()
    right = one(test.images.reshape(len(test), -1) / np.float32(255)).argmax(1) == test.labels
    print(f"the same parameters, bit for bit; accuracy {right.mean():.2%}")


if __name__ == "__main__":
    main()
