"""Pipelines that `bushel.simulate` was not fitted to: `python -m benchmarks simulation --held-out`.

Text, Parquet, images, mixtures of a few and of many, packed sequences, records of which some are
slow or come late, from 100 bytes to 39 MB a batch. What they read is written to a folder of its own
the first time.
"""

import functools
import io
import json
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bushel
from bushel import IterDataset, MapDataset
from bushel.experimental import FirstFitPackIterDataset

_ENDLESS = 1 << 40
_WORDS = "the of and to in a is that for it as was with be by on not he his but".split()
_ZIPPED = [
    zlib.compress(np.random.default_rng(seed).integers(0, 60, 30_000).astype(np.uint8))
    for seed in range(8)
]


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="bushel-simulation-"))


@functools.cache
def _lines() -> Any:
    chance = np.random.default_rng(1)
    path = _folder() / "text.jsonl"
    with path.open("w") as out:
        for number in range(20_000):
            words = chance.choice(_WORDS, chance.integers(20, 200))
            out.write(json.dumps({"id": number, "text": " ".join(words)}) + "\n")
    return bushel.open(str(path))


def tokens(record: Any) -> Any:
    """Words to numbers, in Python."""
    ids = np.array([zlib.crc32(word.encode()) % 30_000 for word in record["text"].split()])
    return np.resize(ids, 128).astype(np.int32)


@functools.cache
def _jpegs() -> list[bytes]:
    from PIL import Image

    made = []
    for seed in range(64):
        small = np.random.default_rng(seed).integers(0, 255, (28, 28, 3)).astype(np.uint8)
        out = io.BytesIO()
        Image.fromarray(small).resize((256, 256)).save(out, "JPEG", quality=90)
        made.append(out.getvalue())
    return made


def decoded(data: bytes) -> Any:
    """A picture of 224 x 224, by a library that lets the interpreter's lock go."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB").crop((16, 16, 240, 240)))


def unzipped(number: int) -> Any:
    return np.frombuffer(zlib.decompress(_ZIPPED[number % 8]), np.uint8)[:2000]


def summed(number: int) -> Any:
    return np.full(2000, (sum(range(800)) + number) % 251, np.uint8)


def plain(number: int) -> Any:
    return np.full(2000, number % 251, np.uint8)


def sequence(number: int) -> Any:
    return {"ids": np.arange(sum(range(200)) % 3 + 10 + number * 7919 % 200, dtype=np.int32)}


def uneven(number: int) -> Any:
    """One in sixteen takes forty times as long."""
    return np.full(64, sum(range(60_000 if number % 16 == 5 else 1_500)) % 1000)


def far(number: int) -> Any:
    """Some answers come late."""
    time.sleep(0.012 if number % 10 == 3 else 0.001)
    return np.full(64, number % 1000)


def large(number: int) -> Any:
    """600 kB."""
    return np.full((320, 160, 3), number % 7, np.float32)


def slow_source(number: int) -> Any:
    """A disk far away."""
    time.sleep(0.003)
    return np.full(100, number % 251, np.uint8)


def small(number: int) -> Any:
    """100 bytes, quickly."""
    return np.full(100, number % 251, np.uint8)


def small_and_slow(number: int) -> Any:
    """100 bytes, after a while in Python."""
    return np.full(100, sum(range(30_000)) % 251 + number % 3, np.uint8)


def scaled(number: int) -> Any:
    """1.2 MB, through memory several times."""
    picture = np.full((320, 320, 3), number % 7, np.float32)
    return (picture * 0.5 + 1.0).clip(0.0, 2.0)


@functools.cache
def _table() -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(2)
    texts = [" ".join(chance.choice(_WORDS, 40)) for _ in range(1000)]
    columns = {"id": np.arange(50_000), "text": [texts[number % 1000] for number in range(50_000)]}
    path = _folder() / "table.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=1000)
    return bushel.open(str(path))


def _many() -> Any:
    numbers = MapDataset.range(1 << 30)
    kinds = (unzipped, summed, plain)
    parts = [numbers.shuffle(seed=part).map(kinds[part % 3]) for part in range(100)]
    return MapDataset.mix(parts, weights=[1 + part % 5 for part in range(100)]).batch(64)


def _mixed() -> Any:
    numbers = MapDataset.range(1 << 30)
    parts = [numbers.map(one) for one in (unzipped, summed, plain)]
    return MapDataset.mix(parts, weights=[0.2, 0.3, 0.5]).batch(64)


def _packed() -> Any:
    stream: IterDataset[Any] = MapDataset.range(_ENDLESS).map(sequence).to_iter_dataset()
    return FirstFitPackIterDataset(
        stream, length_struct={"ids": 512}, num_packing_bins=16, shuffle_bins=False
    ).batch(8)


PIPELINES: dict[str, Callable[[], Any]] = {
    "text": lambda: MapDataset.source(_lines()).shuffle(seed=1).repeat().map(tokens).batch(32),
    "images": lambda: MapDataset.source(_jpegs()).repeat().map(decoded).batch(16),
    "a mixture": _mixed,
    "packed": _packed,
    "slow records": lambda: MapDataset.range(_ENDLESS).map(uneven).batch(16),
    "late answers": lambda: MapDataset.range(_ENDLESS).map(far).batch(8),
    "a mixture of 100": _many,
    "shuffled Parquet": lambda: (
        MapDataset.source(_table()).shuffle(seed=1).repeat().map(tokens).batch(32)
    ),
    "a slow source": lambda: MapDataset.range(_ENDLESS).map(slow_source).batch(8),
    "100 bytes": lambda: MapDataset.range(_ENDLESS).map(small).batch(16),
    "100 slow bytes": lambda: MapDataset.range(_ENDLESS).map(small_and_slow).batch(4),
    "10 MB a batch": lambda: MapDataset.range(_ENDLESS).map(scaled).batch(8),
    "39 MB a batch": lambda: MapDataset.range(_ENDLESS).map(large).batch(64),
}
