"""Three ways to write the same work, and what they cost.

Python spends about a microsecond on every function call; numpy spends a few on a call that handles
thousands of values. When records are small, handing a function many of them at once is
worth more than any number of processors.
"""

import time

import numpy as np

import bushel as grain

RECORDS, BATCH = 200_000, 1_024
rng = np.random.default_rng(0)

# A dict of arrays of equal length is a source whose records are dicts of rows. bushel reads
# it a block at a time and keeps the block as columns for as long as nobody asks for records.
COLUMNS = {
    "x": rng.normal(size=(RECORDS, 8)).astype(np.float32),
    "label": rng.integers(0, 10, RECORDS),
}


def normalise(element):
    """Works for one record, and for many along the first axis: it only looks at the last one."""
    x = element["x"]
    return element | {"x": x / np.sqrt((x * x).sum(axis=-1, keepdims=True))}


def shuffled():
    return grain.MapDataset.source(COLUMNS).seed(1).shuffle()


PIPELINES = {
    # One call for each record.
    "map, then batch": shuffled().map(normalise).batch(BATCH),
    # One call for each block of records. How many records a block holds is bushel's choice, and may
    # differ from call to call. So the function must be element-wise: what it does to a record
    # must not depend on the other records in the block, and it must return as many as it got.
    "map_batches, then batch": shuffled().map_batches(normalise).batch(BATCH),
    # One call for each batch of exactly 1,024. Here a function may look across records.
    "batch, then map": shuffled().batch(BATCH).map(normalise),
}

reference = None
for name, dataset in PIPELINES.items():
    start = time.perf_counter()
    batches = list(dataset)
    seconds = time.perf_counter() - start
    reference = reference or batches
    same = all(
        np.array_equal(one[key], other[key])
        for one, other in zip(batches, reference, strict=True)
        for key in ("x", "label")
    )
    print(f"{name:26} {RECORDS / seconds:12,.0f} records/s   {'same' if same else 'OTHER'} batches")
