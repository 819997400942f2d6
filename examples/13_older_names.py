"""Programs from older guides: names that Grain has since moved or renamed still work."""

import tempfile
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
from pictures import Pictures

import bushel as grain


class ToFloat(grain.MapTransform):
    def map(self, record):
        return record | {"image": record["image"].astype(np.float32) / 255}


class Brightness(grain.RandomMapTransform):
    def random_map(self, record, rng):
        return record | {"image": record["image"] * np.float32(rng.uniform(0.5, 1.5))}


class Even(grain.FilterTransform):
    def filter(self, record):
        return bool(record["label"] % 2 == 0)


source = Pictures("train")
loader = grain.DataLoader(
    data_source=source,
    sampler=grain.IndexSampler(
        num_records=len(source),
        shard_options=grain.ShardByJaxProcess(drop_remainder=True),
        shuffle=True,
        num_epochs=2,
        seed=4,
    ),
    operations=[Even(), ToFloat(), Brightness(), grain.BatchTransform(batch_size=16)],
)

# Three generations of names for the same three things.
GENERATIONS = {
    "PyGrain": (grain.PyGrainCheckpointSave, grain.PyGrainCheckpointRestore),
    "Grain": (grain.GrainCheckpointSave, grain.GrainCheckpointRestore),
    "checkpoint": (grain.checkpoint.CheckpointSave, grain.checkpoint.CheckpointRestore),
}
batches = iter(loader)
with tempfile.TemporaryDirectory() as folder:
    for step, (name, (save, restore)) in enumerate(GENERATIONS.items()):
        for _ in range(10):
            next(batches)
        with ocp.CheckpointManager(Path(folder, name)) as manager:
            manager.save(step, args=ocp.args.Composite(data=save(batches)))
            manager.wait_until_finished()
            expected = next(batches)
            manager.restore(step, args=ocp.args.Composite(data=restore(batches)))
        assert np.array_equal(next(batches)["image"], expected["image"])
        print(f"{name:10} saved and restored, then labels {expected['label'][:8]}")

    # Without a manager, and before there were arguments: a handler and an item.
    handlers = grain.PyGrainCheckpointHandler(), grain.GrainCheckpointHandler()
    for path, handler in zip((Path(folder, "one"), Path(folder, "two")), handlers, strict=True):
        checkpointer = ocp.Checkpointer(handler)
        checkpointer.save(path, batches)
        expected = next(batches)
        checkpointer.restore(path, batches)
        assert np.array_equal(next(batches)["image"], expected["image"])

print(f"{sum(len(batch['label']) for batch in batches)} records were still to come")
