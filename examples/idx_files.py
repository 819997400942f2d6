"""Reads the IDX files in which MNIST and Fashion-MNIST are published.

A file says what it holds in its first bytes: two zeros, a code for the type, the number of
axes, then the length of each axis as a big-endian 32-bit integer. The values follow.
"""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


class IdxError(ValueError):
    """A file that is not there, or not what its name promises."""


def read_split(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Gives images (n, height, width) and labels (n,) of `train` or `test`."""
    images_path, labels_path = (_find(folder, name) for name in FILES[split])
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise IdxError(
            f"{images_path}: expected grey images, uint8 with 3 axes, "
            f"and found {images.dtype} with shape {images.shape}"
        )
    if labels.ndim != 1 or labels.dtype != np.uint8:
        raise IdxError(
            f"{labels_path}: expected labels, uint8 with 1 axis, "
            f"and found {labels.dtype} with shape {labels.shape}"
        )
    if len(images) != len(labels):
        raise IdxError(
            f"{len(images):,} images in {images_path}, but {len(labels):,} labels in {labels_path}"
        )
    return images, labels


def read_idx(path: Path) -> np.ndarray:
    """Gives the array in an IDX file, plain or gzipped."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise IdxError(f"{path}: cannot be read: {error}") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES or content[3] == 0:
        raise IdxError(
            f"{path}: not an IDX file (it starts with {content[:4].hex(' ') or 'nothing'})"
        )
    dtype, axes = np.dtype(TYPES[content[2]]), content[3]
    start = 4 + 4 * axes
    if len(content) < start:
        raise IdxError(f"{path}: ends inside its header, after {len(content)} bytes")
    shape = struct.unpack(f">{axes}I", content[4:start])
    wanted = start + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if len(content) != wanted:
        raise IdxError(
            f"{path}: its header announces shape {shape}, which is a file of {wanted:,} bytes, "
            f"but it has {len(content):,}: incomplete download?"
        )
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="), copy=False)


def _find(folder: Path, name: str) -> Path:
    if not folder.is_dir():
        raise IdxError(f"{folder} is not a folder; it should hold {name}.gz and its three siblings")
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise IdxError(f"{folder} holds neither {name} nor {name}.gz")
