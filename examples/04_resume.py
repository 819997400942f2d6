"""Stops a pipeline anywhere and goes on later: filter, shuffle and random numbers included."""

import json
import tempfile
from pathlib import Path

import numpy as np

import bushel as grain


def pipeline(limit=100_000):
    return (
        grain.MapDataset.range(limit)
        .seed(3)
        .shuffle()
        .repeat(2)
        .filter(lambda x: x % 7 != 0)
        .random_map(lambda x, rng: {"id": x, "noise": rng.normal()})
        .to_iter_dataset()
        .batch(100)
    )


with tempfile.TemporaryDirectory() as folder:
    checkpoint = Path(folder, "input.json")

    # A training run that is stopped after 700 batches.
    batches = iter(pipeline())
    for _ in range(700):
        next(batches)
    checkpoint.write_text(json.dumps(batches.get_state(), indent=2))
    expected = [next(batches) for _ in range(3)]

    # Another process, another day: the same pipeline, put where the other one was.
    saved = json.loads(checkpoint.read_text())
    batches = iter(pipeline())
    batches.set_state(saved)
    got = [next(batches) for _ in range(3)]

print("The state after 700 batches:")
print(json.dumps(saved, indent=2))
print("\nThe next three batches, first ids and noise:")
for one, other in zip(expected, got, strict=True):
    same = all(np.array_equal(one[key], other[key]) for key in ("id", "noise"))
    print(f"  {other['id'][:4]} {other['noise'][:2]}  {'identical' if same else 'DIFFERENT'}")

# A state belongs to the pipeline that made it. Another one says so, and stays where it was.
try:
    iter(pipeline(limit=99_000)).set_state(saved)
except ValueError as error:
    print(f"\nWith other data: {type(error).__name__}: {error}")
