"""Decodes the files of a sample, by their file name endings."""

import io
import json
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from bushel.sources.images import decode_image

Decoder: TypeAlias = Callable[[bytes], Any]


def _text(data: bytes) -> str:
    return data.decode()


def _number(data: bytes) -> int:
    return int(data)


def _float(data: bytes) -> float:
    return float(data)


def _json_lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def _array(data: bytes) -> Any:
    # Not `allow_pickle`: data must not run programs.
    return np.load(io.BytesIO(data), allow_pickle=False)


def _arrays(data: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


def _image(data: bytes) -> Any:
    return decode_image(data, "in it")


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), _number),
    "float": _float,
    **dict.fromkeys(("json", "jsn"), json.loads),
    "jsonl": _json_lines,
    "npy": _array,
    "npz": _arrays,
    **dict.fromkeys(("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "webp", "bmp"), _image),
}
