"""The DataLoader guide: sampler, TFDS source, transformations, workers, checkpoints."""

import sys
import tempfile
from pathlib import Path

import cv2
import digits_tfds
import matplotlib
import numpy as np
import orbax.checkpoint as ocp
import tensorflow_datasets as tfds

import bushel.python as grain

matplotlib.use("Agg")  # draws into files
import matplotlib.pyplot as plt


# A transformation is a class with one method. Workers get a copy of the object.
class ResizeAndCrop(grain.MapTransform):
    def map(self, element):
        image = cv2.resize(element["image"], dsize=(64, 64), interpolation=cv2.INTER_LINEAR)
        element["image"] = image[:56, :56]
        return element


def show_sampler():
    """A sampler says which record comes when, and brings the random numbers for it."""
    sampler = grain.IndexSampler(
        num_records=5,
        num_epochs=2,
        shard_options=grain.ShardOptions(shard_index=0, shard_count=1, drop_remainder=True),
        shuffle=True,
        seed=0,
    )
    print("step record  a random number of its own")
    for metadata in sampler:
        assert metadata.rng is not None
        print(f"{metadata.index:4} {metadata.record_key:6}  {metadata.rng.integers(1000):3}")
    return sampler


def plot(loader, path):
    figure, axes = plt.subplots(2, 5)
    for axis, element in zip(axes.flat, loader, strict=True):
        axis.imshow(element["image"], cmap="gray")
        axis.set_title(int(element["label"]))
        axis.axis("off")
    figure.savefig(path)
    plt.close(figure)
    height, width = plt.imread(path).shape[:2]
    print(f"\nten pictures drawn, {width} x {height} pixels")


def read(iterator, count):
    elements = [next(iterator) for _ in range(count)]
    return [f"a {e['label']}, its pixels sum to {e['image'].sum()}" for e in elements]


def show_checkpoint(loader, folder):
    """Saves the iterator with Orbax, reads on, restores, and reads the same again."""
    data_iter = iter(loader)
    print("\nread:    ", read(data_iter, 5)[-1])

    with ocp.CheckpointManager(folder) as manager:
        assert manager.save(5, args=grain.PyGrainCheckpointSave(data_iter), force=True)
        manager.wait_until_finished()  # Orbax writes in the background
        files = sorted(p.relative_to(folder) for p in folder.rglob("*.json"))
        print("saved:   ", *(f for f in files if "process" in f.name))

        expected = read(data_iter, 5)
        print("read on: ", expected[-1])
        manager.restore(5, args=grain.PyGrainCheckpointRestore(data_iter))
        again = read(data_iter, 5)
        print("restored:", again[-1])
    assert again == expected


def show_workers(source):
    """The same records whoever reads them; each worker may have threads of its own."""
    loaders = [
        grain.DataLoader(
            data_source=source,
            operations=[ResizeAndCrop()],
            sampler=grain.IndexSampler(
                num_records=len(source),
                num_epochs=1,
                shard_options=grain.NoSharding(),
                shuffle=True,
                seed=0,
            ),
            worker_count=workers,
            read_options=grain.ReadOptions(num_threads=8, prefetch_buffer_size=500),
        )
        for workers in (0, 2)
    ]
    here, elsewhere = ([e["image"] for e in loader] for loader in loaders)
    assert np.array_equal(here, elsewhere)
    print(f"\n{len(here)} pictures, the same ones from 2 workers with 8 threads each")

    # Small values in memory that all workers share.
    memory = grain.InMemoryDataSource(range(5))
    loader = grain.DataLoader(
        data_source=memory,
        sampler=grain.IndexSampler(
            num_records=len(memory),
            num_epochs=2,
            shard_options=grain.NoSharding(),
            shuffle=True,
            seed=0,
        ),
        worker_count=5,
    )
    print("0 to 4, twice, from 5 workers:", *loader)


def main():
    with tempfile.TemporaryDirectory() as folder:
        sampler = show_sampler()

        digits_tfds.build(folder)
        source = tfds.data_source("digits", split="test", data_dir=folder)
        first = source[0]
        print(f"\n{len(source)} records, the first a {first['label']} of {first['image'].shape}")

        loader = grain.DataLoader(
            data_source=source, operations=[ResizeAndCrop()], sampler=sampler, worker_count=0
        )
        plot(loader, Path(folder, "pictures.png"))
        show_checkpoint(loader, Path(folder, "orbax"))
        show_workers(source)
    assert "tensorflow" not in sys.modules
    print("\nTensorFlow was not needed.")


if __name__ == "__main__":
    main()
