"""Writes the folders of litdata's chunks, with litdata.

    python -m tests.sources.foreign.write_litdata

Run with litdata 0.2.50 or one of that time, it writes the two folders of older chunks instead.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import litdata
import numpy as np
import torch
from litdata.streaming.cache import Cache
from PIL import Image

from tests.sources.foreign.records import (
    json_records,
    litdata_records,
    small_records,
    token_blocks,
    token_documents,
)

HERE = Path(__file__).parent
OLD = litdata.__version__ <= "0.2.50"


def _made(record: dict[str, Any]) -> dict[str, Any]:
    tensors = {name: torch.from_numpy(array) for name, array in record["tensor"].items()}
    return {**record, "tensor": tensors, "picture": Image.fromarray(record["picture"])}


def _write(name: str, records: list[Any], **options: Any) -> None:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    cache = Cache(str(folder), **options)
    for number, record in enumerate(records):
        cache[number] = record
    cache.done()
    cache.merge()
    for leftover in folder.iterdir():
        if leftover.suffix not in (".bin", ".json"):
            leftover.unlink()


def _check(name: str, records: list[Any], **options: Any) -> None:
    copy = Path("/tmp/litdata-check") / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(HERE / name, copy)
    dataset = litdata.StreamingDataset(str(copy), **options)
    assert len(dataset) == len(records)
    for number, wanted in enumerate(records):
        _equal(dataset[number], wanted)


def _equal(read: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert list(read) == list(wanted)
        for name, value in wanted.items():
            _equal(read[name], value)
    elif isinstance(wanted, (list, tuple)):
        assert type(read) is type(wanted) and len(read) == len(wanted)
        for one, other in zip(read, wanted, strict=True):
            _equal(one, other)
    elif isinstance(wanted, bytes):
        assert bytes(read) == wanted
    else:
        assert np.array_equal(np.asarray(read), np.asarray(wanted)), (read, wanted)


if __name__ == "__main__":
    records = litdata_records()
    if OLD:
        _write("litdata-old", [_made(record) for record in records], chunk_size=4)
        _check("litdata-old", records)
        _write("litdata-zstd", small_records(), chunk_size=4, compression="zstd")
        _check("litdata-zstd", small_records())
        sys.exit()
    _write("litdata", [_made(record) for record in records], chunk_size=4)
    _check("litdata", records)
    _write("litdata-json", json_records(), chunk_size=50)
    _check("litdata-json", json_records())
    arrays = [{"a": np.arange(n + 2)} for n in range(6)]
    _write("litdata-batched", arrays, chunk_size=4, compression="zstd", compression_batch_size=3)
    _check("litdata-batched", arrays)
    _write("litdata-table", small_records(), chunk_size=4, compression="zstd")
    _check("litdata-table", small_records())
    loader = litdata.TokensLoader(block_size=4)
    _write("litdata-tokens", token_documents(), chunk_size=20, item_loader=loader)
    _check("litdata-tokens", token_blocks(), item_loader=litdata.TokensLoader(block_size=4))
    _write("litdata-pickle", [{"x": {n}} for n in range(2)], chunk_size=4)
