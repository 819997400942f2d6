"""What else grows in a pipeline: lanes, workers, steps, records, the dataset itself."""

import zlib
from functools import cache
from typing import Any

import numpy as np

from benchmarks.growth.axis import Axis, Variant, streamed
from benchmarks.records import Reused

RECORDS = 1_000_000_000
BATCH = 32
LANES_BATCH = 1024
HEAVY_BATCH = 4
# Half noise and half zeros, so that zlib neither gives up nor races through.
PAYLOAD = np.random.default_rng(0).bytes(65_536) + bytes(65_536)


def double(x: int) -> int:
    return 2 * x


def add_one(x: int) -> int:
    return x + 1


def is_known(x: int) -> bool:
    return x >= 0


def is_odd(x: int) -> bool:
    return x % 2 == 1


def compress(x: int) -> int:
    return x + len(zlib.compress(PAYLOAD, 1))


def dealt(lib: Any, count: int) -> Any:
    """Deals to one host by name: to ask JAX would import it, which is not what is measured."""
    shuffled = lib.MapDataset.range(RECORDS).shuffle(seed=1)
    return shuffled.lanes(count, shard_options=lib.ShardOptions(0, 1))


def lanes_plain(lib: Any, count: int, _: Any) -> Any:
    return dealt(lib, count).map(double).batch(LANES_BATCH)


def lanes_filtered(lib: Any, count: int, _: Any) -> Any:
    return dealt(lib, count).filter(is_odd).batch(LANES_BATCH)


def lanes_mixed(lib: Any, count: int, _: Any) -> Any:
    """A mixture and a filter in each lane."""
    shuffled = [lib.MapDataset.range(RECORDS).shuffle(seed=seed) for seed in range(4)]
    parts = [part.lanes(count, shard_options=lib.ShardOptions(0, 1)) for part in shuffled]
    return lib.IterDataset.mix(parts, [4, 3, 2, 1]).filter(is_odd).batch(LANES_BATCH)


def in_workers(lib: Any, dataset: Any, count: int) -> Any:
    options = lib.MultiprocessingOptions(num_workers=count)
    return streamed(lib, dataset).mp_prefetch(options)


def workers_light(lib: Any, count: int, _: Any) -> Any:
    dataset = lib.MapDataset.range(RECORDS).shuffle(seed=1).map(double).batch(BATCH)
    return in_workers(lib, dataset, count)


def workers_heavy(lib: Any, count: int, _: Any) -> Any:
    dataset = lib.MapDataset.range(RECORDS).map(compress).batch(HEAVY_BATCH)
    return in_workers(lib, dataset, count)


def maps(lib: Any, count: int, _: Any) -> Any:
    dataset = lib.MapDataset.range(RECORDS)
    for _ in range(count):
        dataset = dataset.map(add_one)
    return streamed(lib, dataset).batch(BATCH)


def filters(lib: Any, count: int, _: Any) -> Any:
    dataset = lib.MapDataset.range(RECORDS)
    for _ in range(count):
        dataset = dataset.filter(is_known)
    return streamed(lib, dataset).batch(BATCH)


def both(lib: Any, count: int, _: Any) -> Any:
    stream = streamed(lib, lib.MapDataset.range(RECORDS))
    for number in range(count):
        stream = stream.filter(is_known) if number % 2 else stream.map(add_one)
    return stream.batch(BATCH)


@cache
def record(size: int) -> bytes:
    return bytes(size)


def copy_bytes(data: bytes) -> bytes:
    return data[1:]


def copy_array(data: Any) -> Any:
    return data + 1


def as_bytes(lib: Any, size: int, _: Any) -> Any:
    return lib.MapDataset.source(Reused([record(size)], RECORDS)).map(copy_bytes)


def as_array(lib: Any, size: int, _: Any) -> Any:
    array = np.zeros(size, np.uint8)
    return lib.MapDataset.source(Reused([array], RECORDS)).map(copy_array)


def inline_bytes(lib: Any, size: int, _: Any) -> Any:
    return streamed(lib, as_bytes(lib, size, _))


def inline_array(lib: Any, size: int, _: Any) -> Any:
    return streamed(lib, as_array(lib, size, _))


def worker_bytes(lib: Any, size: int, _: Any) -> Any:
    return inline_bytes(lib, size, _).mp_prefetch(lib.MultiprocessingOptions(num_workers=1))


def worker_array(lib: Any, size: int, _: Any) -> Any:
    return inline_array(lib, size, _).mp_prefetch(lib.MultiprocessingOptions(num_workers=1))


def shuffle(lib: Any, length: int, _: Any) -> Any:
    return streamed(lib, lib.MapDataset.range(length).shuffle(seed=1).repeat()).batch(BATCH)


def shuffle_batches(lib: Any, length: int, _: Any) -> Any:
    batches = lib.MapDataset.range(length).shuffle(seed=1).batch(BATCH)
    return streamed(lib, batches.shuffle(seed=2).repeat())


def add_noise(x: int, rng: np.random.Generator) -> int:
    return x + int(rng.integers(10))


def random_map(lib: Any, length: int, _: Any) -> Any:
    dataset = lib.MapDataset.range(length).shuffle(seed=1).repeat()
    return streamed(lib, dataset.random_map(add_noise, seed=2)).batch(BATCH)


LANES = Axis(
    name="lanes",
    title="lanes",
    sizes=(1, 4, 16, 64, 256, 1024),
    variants={
        "plain": Variant("plain", lanes_plain, LANES_BATCH, grain=False),
        "filtered": Variant("filtered", lanes_filtered, LANES_BATCH, grain=False),
        "mixed": Variant("mixed, filtered", lanes_mixed, LANES_BATCH, grain=False),
    },
)
WORKERS = Axis(
    name="workers",
    title="workers",
    sizes=(1, 2, 4, 8, 16, 32),
    variants={
        "light": Variant("light", workers_light),
        "heavy": Variant("heavy", workers_heavy, HEAVY_BATCH),
    },
    patience=15.0,
    run_in=2.0,  # to start 32 processes takes two cores a second
)
STEPS = Axis(
    name="steps",
    title="steps in a chain",
    sizes=(1, 3, 10, 30, 100),
    variants={
        "maps": Variant("maps", maps, per_size=True),
        "filters": Variant("filters", filters, per_size=True),
        "both": Variant("maps and filters of a stream", both, per_size=True),
    },
)
SIZE = Axis(
    name="bytes",
    title="bytes of a record",
    sizes=tuple(10**power for power in range(1, 9)),
    variants={
        "inline_bytes": Variant("bytes, inline", inline_bytes, 1, per_size=True),
        "inline_array": Variant("array, inline", inline_array, 1, per_size=True),
        "worker_bytes": Variant("bytes, one worker", worker_bytes, 1, per_size=True),
        "worker_array": Variant("array, one worker", worker_array, 1, per_size=True),
    },
)
LENGTH = Axis(
    name="length",
    title="length of the dataset",
    sizes=(10**3, 10**6, 10**9, 10**12),
    variants={
        "shuffle": Variant("shuffle, repeat", shuffle),
        "batches": Variant("shuffled batches", shuffle_batches),
        "random_map": Variant("shuffle, random_map", random_map),
    },
)
