"""What a user of any of the libraries brings along: the same functions for all of them.

Worker processes that are no forks import this file, and nothing of the benchmarks beside it.
"""

import json
import mmap
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Tokens = NDArray[np.int32]

SIDE = 224
IMAGE_BATCH = 64

END = "<|end|>"
END_ID = 0
TAGS = {"web": "<|web|>", "books": "<|books|>"}  # each document begins with that of its corpus
TAG_IDS = {"web": 1, "books": 2}
WEIGHTS = {"web": 0.7, "books": 0.3}
ROW = 2048
ROWS = 8
WINDOW = 1025  # of ready tokens: 1,024 and the next of each


@cache
def opencv() -> ModuleType:
    """Imports OpenCV without threads of its own: the cores are given out by the pipeline."""
    import cv2

    cv2.setNumThreads(0)
    module: ModuleType = cv2
    return module


def decode_crop_flip(jpeg: bytes, rng: np.random.Generator) -> Image:
    cv2 = opencv()
    image: Image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR_RGB)
    height, width, _ = image.shape
    top, left, flip = rng.integers((height - SIDE + 1, width - SIDE + 1, 2))
    image = image[top : top + SIDE, left : left + SIDE]
    return cv2.flip(image, 1) if flip else image


@cache
def tokenizer(folder: str) -> Any:
    """Reads the tokenizer once in each process, to run in the thread that calls it."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    return Tokenizer.from_file(f"{folder}/tokenizer.json")


def tokenise(folder: str, text: str) -> Tokens:
    ids = tokenizer(folder).encode(text).ids
    ids.append(END_ID)
    return np.array(ids, np.int32)


def tokenised(folder: str, record: dict[str, str]) -> dict[str, Any]:
    return {"tokens": tokenise(folder, record["text"])}


def tokenised_text(folder: str, text: str) -> dict[str, Any]:
    return {"tokens": tokenise(folder, text)}


class Packer:
    """Lays documents end to end and cuts them into batches of rows; the rest waits for more."""

    def __init__(self, rest: Iterable[int] = ()) -> None:
        self._parts = [np.fromiter(rest, np.int32)]
        self._count = len(self._parts[0])

    def batches(self, document: Tokens) -> Iterator[Tokens]:
        """Takes one document; gives the batches that it fills, mostly none."""
        self._parts.append(document)
        self._count += len(document)
        while self._count >= ROW * ROWS:
            batch, rest = np.split(np.concatenate(self._parts), [ROW * ROWS])
            self._parts, self._count = [rest], len(rest)
            yield batch.reshape(ROWS, ROW)

    def rest(self) -> list[int]:
        return [int(token) for part in self._parts for token in part]


class Lines:
    """A file of JSON lines by number, as one writes it for a library without such a source."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            lengths = [len(line) for line in file]
        self._offsets = np.concatenate([[0], np.cumsum(lengths)])
        self._data: mmap.mmap | None = None

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: int) -> str:
        if self._data is None:
            with self._path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        text: str = json.loads(self._data[self._offsets[number] : self._offsets[number + 1]])[
            "text"
        ]
        return text

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_data": None}

    def __repr__(self) -> str:
        return f"Lines({str(self._path)!r})"


def mixed(sizes: dict[str, int], rng: np.random.Generator) -> Iterator[tuple[str, int]]:
    """Draws documents for ever: a corpus by weight, and its documents shuffled anew each epoch."""
    orders: dict[str, Iterator[int]] = {}

    def order(corpus: str) -> Iterator[int]:
        while True:
            yield from rng.permutation(sizes[corpus]).tolist()

    names = list(sizes)
    weights = [WEIGHTS[name] for name in names]
    orders = {name: order(name) for name in names}
    while True:
        for which in rng.choice(len(names), p=weights, size=1024).tolist():
            yield names[which], next(orders[names[which]])
