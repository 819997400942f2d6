"""A source of your own: the pickled batch files in which CIFAR-10 is published."""

import argparse
import hashlib
import pickle
import tempfile
from pathlib import Path

import cv2
import jax
import jax.numpy as jnp
import numpy as np
from pictures import load_pictures

import bushel as grain

BATCH_SIZE = 32


def write_batches(folder):
    """Writes digits as CIFAR-10 has them: rows of 3072 bytes, 1024 each of red, green, blue."""
    for split, names in (
        ("train", [f"data_batch_{i}" for i in range(1, 6)]),
        ("test", ["test_batch"]),
    ):
        images, labels = load_pictures()[split]
        large = np.stack([cv2.resize(image, (32, 32)) for image in images[:2_000]])
        rows = np.repeat(large[:, np.newaxis], 3, axis=1).reshape(-1, 3072)
        parts = np.array_split(np.arange(len(rows)), len(names))
        for name, part in zip(names, parts, strict=True):
            content = {b"data": rows[part], b"labels": labels[part].tolist()}
            Path(folder, name).write_bytes(pickle.dumps(content))


class Cifar10(grain.sources.RandomAccessDataSource):
    """Whatever has a length and a record for every number below it is a source."""

    def __init__(self, folder, train):
        names = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
        batches = []
        for name in names:
            with open(Path(folder, name), "rb") as file:
                batches.append(pickle.load(file, encoding="bytes"))
        data = np.concatenate([batch[b"data"] for batch in batches])
        self.images = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.labels = np.concatenate([batch[b"labels"] for batch in batches])
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"image": self.images[index], "label": self.labels[index], "id": index}

    def __repr__(self):  # a saved state is only accepted by the same source
        return f"Cifar10(train={self.train})"


class NotTooDark(grain.transforms.Filter):
    def filter(self, element):
        return bool(element["image"].mean() > 65)


class RandomShift(grain.transforms.RandomMap):
    def random_map(self, element, rng):
        down, right = rng.integers(-2, 3, size=2)
        return element | {"image": np.roll(element["image"], (down, right), axis=(0, 1))}


class ToFloat(grain.transforms.Map):
    def map(self, element):
        return element | {"image": element["image"].astype(np.float32) / 255}


def train_loader(source, workers, shard=None):
    shard = shard or grain.sharding.ShardByJaxProcess(drop_remainder=True)
    return grain.DataLoader(
        data_source=source,
        sampler=grain.samplers.IndexSampler(
            num_records=len(source), shard_options=shard, shuffle=True, num_epochs=4, seed=1
        ),
        operations=[NotTooDark(), RandomShift(), ToFloat(), grain.transforms.Batch(BATCH_SIZE)],
        worker_count=workers,
    )


@jax.jit
def update(weights, images, labels):
    def loss(weights):
        logits = images.reshape(len(images), -1) @ weights
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()

    return weights - 0.02 * jax.grad(loss)(weights)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    workers = parser.parse_known_args()[0].workers
    with tempfile.TemporaryDirectory() as folder:
        write_batches(folder)
        source, test_source = Cifar10(folder, train=True), Cifar10(folder, train=False)
    print(f"{len(source)} records of {source[0]['image'].shape}, and {len(test_source)} to test")

    weights = jnp.zeros((3072, 10))
    digest, count = hashlib.sha256(), 0
    for batch in train_loader(source, workers):
        for name in sorted(batch):
            digest.update(np.ascontiguousarray(batch[name]).data)
        weights = update(weights, batch["image"], batch["label"])
        count += len(batch["id"])
    print(f"trained on {count} records, sha256 {digest.hexdigest()[:16]}")

    # Half of the data on each of two machines, nothing twice.
    halves = []
    for index in range(2):
        shard = grain.sharding.ShardOptions(shard_index=index, shard_count=2)
        halves.append({i for batch in train_loader(source, 0, shard) for i in batch["id"].tolist()})
    assert not halves[0] & halves[1]
    print(f"two machines: {len(halves[0])} and {len(halves[1])} different records")

    # In the middle of the second epoch, as bytes.
    batches = iter(train_loader(source, workers))
    for _ in range(50):
        next(batches)
    state, expected = batches.get_state(), next(batches)
    again = iter(train_loader(source, workers))
    again.set_state(state)
    assert np.array_equal(next(again)["image"], expected["image"])
    print(f"resumed at batch 50, records {expected['id'][:5]}...")

    test = grain.DataLoader(
        data_source=test_source,
        sampler=grain.samplers.SequentialSampler(
            num_records=len(test_source), shard_options=grain.sharding.NoSharding()
        ),
        operations=[ToFloat(), grain.transforms.Batch(BATCH_SIZE)],
    )
    right = sum(
        int(((batch["image"].reshape(-1, 3072) @ weights).argmax(1) == batch["label"]).sum())
        for batch in test
    )
    print(f"accuracy {right / len(test_source):.2%}")


if __name__ == "__main__":
    main()
