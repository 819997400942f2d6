"""The first look through a file: where its records begin, against only reading the file."""

import atexit
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import ModuleType

import numpy as np

from benchmarks import proof
from benchmarks.workload import BYTE_RATE, Form, Goal, Make, Unit, Workload

FILE_BYTES = 1 << 27
READ_BYTES = 1 << 23
# Of noise, of which records are cut.
NOISE = np.random.default_rng(1).bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class FileRate:
    """Measures how many bytes of a file a second are gone through."""

    @property
    def unit(self) -> Unit:
        return BYTE_RATE

    @property
    def fresh_process(self) -> bool:
        return False

    def prove(self, make: Make) -> proof.Proof:
        size = f"{make(FILE_BYTES // 16)()} bytes"
        return proof.Proof(total=size, order=size)

    def read(self, make: Make, seconds: float) -> float:
        go = make(FILE_BYTES)
        go()  # The file is in memory from here on.
        size, start = 0, perf_counter()
        while perf_counter() - start < seconds:
            size += go()
        return size / (perf_counter() - start)


@cache
def folder() -> Path:
    made = TemporaryDirectory(prefix="bushel-benchmarks-")
    atexit.register(made.cleanup)
    return Path(made.name)


def records(n: int, least: int, most: int) -> Iterator[bytes]:
    """Pieces of noise that make n bytes together, about."""
    rng = np.random.default_rng(n)
    lengths = rng.integers(least, most, 2 * n // (least + most))
    starts = rng.integers(len(NOISE) - most, size=len(lengths))
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        yield NOISE[start : start + length]


@cache
def json_lines(n: int) -> Path:
    path = folder() / f"{n}.jsonl"
    with path.open("w") as file:
        # Twice as many bytes in hexadecimal digits, and some around them.
        for number, record in enumerate(records(n * 2 // 5, 40, 130)):
            file.write(json.dumps({"id": number, "text": record.hex()}) + "\n")
    return path


def tfrecords(n: int, least: int, most: int) -> Path:
    from bushel.sources import write_tfrecords

    path = folder() / f"{n}-{most}.tfrecord"
    if not path.exists():
        write_tfrecords(path, records(n, least, most))
    return path


def large_tfrecords(n: int) -> Path:
    return tfrecords(n, 3000, 5000)


def small_tfrecords(n: int) -> Path:
    return tfrecords(n, 150, 250)


def tar_of(n: int, least: int, most: int) -> Path:
    path = folder() / f"{n}-{most}.tar"
    if path.exists():
        return path
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as file:
        for number, picture in enumerate(records(n, least, most)):
            for ending, data in (("jpg", picture), ("cls", b"7")):
                member = tarfile.TarInfo(f"{number:08}.{ending}")
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))
    return path


def large_tar(n: int) -> Path:
    return tar_of(n, 40_000, 80_000)


def small_tar(n: int) -> Path:
    return tar_of(n, 1000, 3000)


Go = Callable[[], int]


def read_through(path: Path) -> Go:
    def go() -> int:
        size = 0
        with path.open("rb", buffering=0) as file:
            while data := file.read(READ_BYTES):
                size += len(data)
        return size

    return go


def index(source: Callable[[Path], object], path: Path) -> Go:
    def go() -> int:
        for kept in path.parent.glob(f".{path.name}*.bushel-index"):
            kept.unlink()
        source(path)
        return path.stat().st_size

    return go


def workload(name: str, title: str, file: Callable[[int], Path], source: str) -> Workload:
    def by_hand(n: int) -> Go:
        return read_through(file(n))

    def indexed(lib: ModuleType, n: int) -> Go:
        return index(getattr(lib.sources, source), file(n))

    return Workload(
        name=name,
        title=title,
        gauge=FileRate(),
        hand=by_hand,
        forms=(Form("", indexed, Goal(0.5, "hand"), grain_agrees=None),),
    )


JSON_LINES = workload("index_json_lines", "index, lines of JSON", json_lines, "JsonLinesDataSource")
TFRECORDS = workload(
    "index_tfrecord", "index, TFRecord, 4 kB", large_tfrecords, "TFRecordDataSource"
)
SMALL_TFRECORDS = workload(
    "index_small_tfrecord", "index, TFRecord, 200 bytes", small_tfrecords, "TFRecordDataSource"
)
TAR = workload("index_tar", "index, tar of 60 kB pictures", large_tar, "TarDataSource")
SMALL_TAR = workload("index_small_tar", "index, tar of 2 kB files", small_tar, "TarDataSource")
