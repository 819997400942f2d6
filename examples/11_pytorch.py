"""PyTorch: tensors on the memory of batches, a shard for each rank, the input in a checkpoint."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from pictures import load_pictures

import bushel as grain

warnings.simplefilter("error")  # PyTorch warns when it gets an array that is not to be written to

torch.set_num_threads(1)  # the other cores are for the workers

WORLD_SIZE, BATCH_SIZE, STEPS = 2, 32, 160


class Augment(grain.transforms.RandomMap):
    def random_map(self, record, rng):
        noise = rng.normal(0, 8, record["image"].shape)
        return record | {"image": ((record["image"] + noise) / 255).astype(np.float32)}


def batches_of(rank, columns):
    """The input of one process; under torchrun, its rank is in os.environ["RANK"]."""
    dataset = grain.MapDataset.source(columns).seed(5)[rank::WORLD_SIZE]
    dataset = dataset.shuffle().repeat().random_map(Augment())
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True).to_iter_dataset()
    return iter(dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=1)))


def to_tensors(batch):
    tensors = {
        "image": torch.from_numpy(batch["image"]),
        "label": torch.utils.dlpack.from_dlpack(batch["label"]),  # for any library with DLPack
        "id": torch.from_numpy(batch["id"]),
    }
    # Nothing was copied: a worker filled this memory, and the tensor keeps it.
    assert all(t.data_ptr() == batch[name].ctypes.data for name, t in tensors.items())
    return tensors


class Run:
    """Two ranks in one process: what DistributedDataParallel does is to average gradients."""

    def __init__(self, columns):
        torch.manual_seed(0)
        pixels = columns["image"][0].size
        self.model = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(pixels, 64),
            torch.nn.ReLU(),
            torch.nn.Linear(64, 10),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.inputs = [batches_of(rank, columns) for rank in range(WORLD_SIZE)]
        self.seen: list[set[int]] = [set() for _ in range(WORLD_SIZE)]

    def train(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            for rank, batches in enumerate(self.inputs):
                batch = to_tensors(next(batches))
                self.seen[rank].update(batch["id"].tolist())
                logits = self.model(batch["image"])
                loss = torch.nn.functional.cross_entropy(logits, batch["label"])
                (loss / WORLD_SIZE).backward()
            self.optimizer.step()

    def save(self, path):
        parts = [self.model, self.optimizer, *self.inputs]
        torch.save([part.state_dict() for part in parts], path)

    def load(self, path):
        parts = [self.model, self.optimizer, *self.inputs]
        for part, state in zip(parts, torch.load(path), strict=True):
            part.load_state_dict(state)

    def close(self):
        for batches in self.inputs:
            batches.close()


def main():
    images, labels = load_pictures()["train"]
    columns = {"image": images, "label": labels.astype(np.int64), "id": np.arange(len(labels))}

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "half_way.pt")
        run = Run(columns)
        run.train(STEPS // 2)
        run.save(path)
        size = path.stat().st_size
        run.train(STEPS - STEPS // 2)

        resumed = Run(columns)
        resumed.load(path)
        resumed.train(STEPS - STEPS // 2)

    one, other = run.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    print(f"resumed from {size:,} bytes at step {STEPS // 2}: the same parameters, bit for bit")

    assert not run.seen[0] & run.seen[1]
    print(f"rank 0 saw {len(run.seen[0])} records, rank 1 saw {len(run.seen[1])}, none both")

    images, labels = load_pictures()["test"]
    with torch.no_grad():
        guesses = run.model(torch.tensor(images) / 255).argmax(1)
    print(f"accuracy {(guesses == torch.tensor(labels)).float().mean():.2%}")
    run.close()
    resumed.close()


if __name__ == "__main__":
    main()
