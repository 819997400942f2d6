"""The work that is done beside busy processes: light and heavy, with the GIL, without, waiting."""

import json
import re
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.records import Reused

# In one thread; by hand on threads; as nobody set anything; workers without threads and with.
WAYS = ("inline", "threads", "default", "workers0", "workers")
RECORDS = 10**9
# Half noise and half zeros, so that zlib neither gives up nor races through.
PAYLOAD = np.random.default_rng(0).bytes(32_768) + bytes(32_768)
WAIT_SECONDS = 0.002
TOKENS = 128
WORDS = re.compile(r"\w+|[^\w\s]")
FILES, FILE_BYTES = 200, 100_000


@dataclass(frozen=True, slots=True)
class Job:
    """A pipeline that delivers batches; `threads` are as many as serve it best by hand."""

    title: str
    make: Callable[[Any], Any]
    batch_size: int
    threads: int = 2


def double(x: int) -> int:
    return 2 * x + 1


def small_map(lib: Any) -> Any:
    return lib.MapDataset.range(RECORDS).map(double).batch(128)


@cache
def documents() -> list[bytes]:
    random = np.random.default_rng(1)
    words = ["".join(chr(97 + c) for c in random.integers(0, 26, n)) for n in range(2, 10)] * 50
    return [
        json.dumps({"id": i, "text": " ".join(random.choice(words, 150)) + "."}).encode()
        for i in range(256)
    ]


def tokenise(document: dict[str, Any]) -> NDArray[np.int32]:
    """Splits into words and looks each up: Python that holds the interpreter's lock."""
    ids: dict[str, int] = {}
    numbers = [ids.setdefault(word, len(ids)) for word in WORDS.findall(document["text"].lower())]
    return np.resize(np.array(numbers, np.int32), TOKENS)


def json_tokens(lib: Any) -> Any:
    source = lib.MapDataset.source(Reused(documents(), RECORDS))
    return source.map(json.loads).map(tokenise).batch(16)


def compress(x: int) -> int:
    return x + len(zlib.compress(PAYLOAD, 1))


def zlib_records(lib: Any) -> Any:
    return lib.MapDataset.range(RECORDS).map(compress).batch(8)


def heavy_batches(lib: Any) -> Any:
    return lib.MapDataset.range(RECORDS).map(compress).batch(192)


def wait(x: int) -> int:
    time.sleep(WAIT_SECONDS)
    return x


def sleeping(lib: Any) -> Any:
    return lib.MapDataset.range(RECORDS).map(wait).batch(8)


def jpegs(lib: Any) -> Any:
    from benchmarks.workloads.jpeg_decode import decode_and_crop
    from benchmarks.workloads.jpeg_decode import jpegs as encoded

    source = lib.MapDataset.source(Reused(encoded(), RECORDS))
    return source.random_map(decode_and_crop, seed=1).batch(16)


@cache
def folder() -> Path:
    """Writes files once for a process and its workers, which are sent their paths."""
    path = Path(tempfile.gettempdir()) / f"bushel-busy-{FILES}x{FILE_BYTES}"
    path.mkdir(exist_ok=True)
    for number in range(FILES):
        file = path / str(number)
        if not file.exists() or file.stat().st_size != FILE_BYTES:
            file.write_bytes(np.random.default_rng(number).bytes(FILE_BYTES))
    return path


def read_file(path: str) -> NDArray[np.uint8]:
    with open(path, "rb") as file:
        return np.frombuffer(file.read(), np.uint8)


def file_reads(lib: Any) -> Any:
    paths = [str(folder() / str(number)) for number in range(FILES)]
    return lib.MapDataset.source(Reused(paths, RECORDS)).map(read_file).batch(16)


@cache
def columns() -> dict[str, NDArray[Any]]:
    x = np.random.default_rng(2).normal(size=(20_000, 256)).astype(np.float32)
    return {"x": x, "y": np.arange(len(x))}


def normalise(batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {"x": np.tanh(batch["x"]), "y": batch["y"]}


def numpy_columns(lib: Any) -> Any:
    source = lib.MapDataset.source(columns()).shuffle(seed=3).repeat()
    return source.batch(256).map(normalise)


def python_batches(lib: Any) -> Any:
    """As heavy as those of zlib, and none of it without the lock."""
    source = lib.MapDataset.source(Reused(documents(), RECORDS))
    return source.map(json.loads).map(tokenise).batch(512)


JOBS = {
    "small_map": Job("small Python map", small_map, 128),
    "json_tokens": Job("JSON, Python tokenizer", json_tokens, 16),
    "zlib": Job("zlib, 8 records", zlib_records, 8),
    "jpeg": Job("JPEG decode, 16 images", jpegs, 16),
    "sleep": Job("2 ms of waiting each", sleeping, 8, threads=16),
    "files": Job("files of 100 kB", file_reads, 16),
    "columns": Job("numpy columns", numpy_columns, 256),
    "heavy": Job("zlib, batches of 75 ms", heavy_batches, 192),
    "heavy_python": Job("Python, batches of 40 ms", python_batches, 512),
}
