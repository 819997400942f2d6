"""Decoding JPEGs and cropping them at random, on two cores: the limit is the decoder."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.by_hand import on_threads
from benchmarks.records import Reused
from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload
from benchmarks.workloads.loader import in_workers, torch_loader
from benchmarks.workloads.random_map import SEED, positioned

Image = NDArray[np.uint8]

BATCH_SIZE = 32
RECORDS = 2000 * BATCH_SIZE
CORES = 2
AHEAD = 4 * CORES
WIDTH, HEIGHT = 500, 375
SIDE = 224
PHOTOGRAPHS = ("china.jpg", "flower.jpg")  # those that come with scikit-learn
FLIPS = (None, 0, 1, -1)
QUALITIES = (75, 85, 95)


@cache
def opencv() -> ModuleType:
    """Imports OpenCV without threads of its own: the cores are given out by the pipeline."""
    import cv2

    cv2.setNumThreads(0)
    module: ModuleType = cv2
    return module


@cache
def jpegs() -> list[bytes]:
    """Makes 24 files of ImageNet's usual size from two photographs: mirrored, in 3 qualities."""
    cv2 = opencv()
    encoded = []
    for name in PHOTOGRAPHS:
        with as_file(files("sklearn") / "datasets" / "images" / name) as path:
            photograph = cv2.resize(cv2.imread(str(path)), (WIDTH, HEIGHT))
        for flip in FLIPS:
            image = photograph if flip is None else cv2.flip(photograph, flip)
            for quality in QUALITIES:
                _, file = cv2.imencode(".jpg", image, (cv2.IMWRITE_JPEG_QUALITY, quality))
                encoded.append(file.tobytes())
    return encoded


def decode_and_crop(jpeg: bytes, rng: np.random.Generator) -> Image:
    cv2 = opencv()
    image: Image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    top, left = rng.integers((HEIGHT - SIDE, WIDTH - SIDE), endpoint=True)
    return image[top : top + SIDE, left : left + SIDE]


def by_hand(n: int) -> Iterator[Image]:
    """Gives whole batches to two threads: OpenCV decodes without the GIL."""
    source = Reused(jpegs(), n)

    def batch(start: int) -> Image:
        keys = range(start, start + BATCH_SIZE)
        return np.stack([decode_and_crop(source[key], positioned(key)) for key in keys])

    return on_threads(batch, range(0, n, BATCH_SIZE), CORES, AHEAD)


def cropped(lib: ModuleType, n: int) -> Any:
    source = lib.MapDataset.source(Reused(jpegs(), n))
    return source.random_map(decode_and_crop, seed=SEED).batch(BATCH_SIZE)


def threads(lib: ModuleType, n: int) -> Iterable[Image]:
    options = lib.ReadOptions(num_threads=CORES)
    pipeline: Iterable[Image] = cropped(lib, n).to_iter_dataset(options)
    return pipeline


def workers(lib: ModuleType, n: int) -> Iterable[Image]:
    return in_workers(lib, cropped(lib, n), CORES)


@dataclass(frozen=True, slots=True)
class Cropped:
    """The same for torch, with the generators that the others make from positions."""

    files: Reused

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, key: int) -> Image:
        return decode_and_crop(self.files[key], positioned(key))


def with_torch(n: int) -> Iterable[Any]:
    return torch_loader(Cropped(Reused(jpegs(), n)), BATCH_SIZE, CORES, shuffle=False)


GOAL = Goal(0.95, "hand")
WORKLOAD = Workload(
    name="jpeg_decode",
    title="JPEG decode, random crop",
    gauge=Throughput(RECORDS, BATCH_SIZE, proof_records=4 * BATCH_SIZE, start_steps=16),
    hand=by_hand,
    torch=with_torch,
    forms=(
        Form("2 threads", threads, GOAL),
        Form("2 workers", workers, GOAL, grain_agrees="outline"),
    ),
)
