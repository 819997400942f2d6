"""The DataLoader: a source, a sampler that chooses records, and a list of operations."""

import numpy as np

import bushel as grain


class Measurements:
    """A source is any object with a length and a way to read record number i."""

    def __len__(self):
        return 1_000

    def __getitem__(self, i):
        return {"id": np.int64(i), "value": np.sin(i / 100).astype(np.float32)}

    def __repr__(self):  # part of a saved state, which is only accepted by the same source
        return "Measurements()"


class Scale(grain.transforms.Map):
    def __init__(self, factor):
        self.factor = factor

    def map(self, record):
        return record | {"value": record["value"] * self.factor}


class AddNoise(grain.transforms.RandomMap):
    def random_map(self, record, rng):
        # The generator depends on the seed and on the record's place in the order, on nothing
        # else: the same noise in every run.
        return record | {"value": record["value"] + np.float32(rng.normal(0, 0.01))}


class Positive(grain.transforms.Filter):
    def filter(self, record):
        return record["value"] > 0


loader = grain.DataLoader(
    data_source=Measurements(),
    sampler=grain.samplers.IndexSampler(
        num_records=1_000,
        shard_options=grain.sharding.ShardOptions(shard_index=0, shard_count=2),
        shuffle=True,
        num_epochs=2,
        seed=5,
    ),
    operations=[Scale(2), AddNoise(), Positive(), grain.transforms.Batch(batch_size=16)],
)

batches = iter(loader)
print("The first three batches of this half of the data:")
for _ in range(3):
    batch = next(batches)
    print("  ids", *batch["id"][:8], "...  mean value", f"{batch['value'].mean():.3f}")

state = batches.get_state()  # bytes, JSON inside: write them wherever your checkpoints go
expected = [batch["id"] for batch in batches]
print(f"\n{len(expected)} batches follow. Now the same from a state of {len(state)} bytes:")

resumed = iter(loader)
resumed.set_state(state)
got = [batch["id"] for batch in resumed]
same = len(got) == len(expected) and all(map(np.array_equal, got, expected))
print(f"  {len(got)} batches, {'the same ones' if same else 'others!'}")
