"""Writes the folders of MDS shards, with MosaicML Streaming.

    pip install mosaicml-streaming; python -m tests.sources.foreign.write_mds

It needs numpy below 2.2, so an environment of its own.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.jobs.streaming_import import import_streaming
from tests.sources.foreign.records import MDS_COLUMNS, mds_records, small_records

HERE = Path(__file__).parent
streaming = import_streaming()


def _with_pictures(record: dict[str, Any]) -> dict[str, Any]:
    made = dict(record)
    for name in ("grey", "png"):
        made[name] = Image.fromarray(record[name])
    made["pictures"] = [Image.fromarray(array) for array in record["pictures"]]
    return made


def _write(name: str, columns: dict[str, str], records: list[Any], **options: Any) -> None:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    with streaming.MDSWriter(out=str(folder), columns=columns, **options) as out:
        for record in records:
            out.write(record)


def _check(name: str, records: list[Any]) -> None:
    copy = Path("/tmp/streaming-check") / name
    shutil.rmtree(copy, ignore_errors=True)
    dataset = streaming.StreamingDataset(
        remote=str(HERE / name), local=str(copy), shuffle=False, batch_size=1
    )
    for read, wanted in zip((dataset[i] for i in range(len(dataset))), records, strict=True):
        for column, value in wanted.items():
            found = read[column]
            if isinstance(found, list) and column == "pictures":
                found = [np.asarray(image) for image in found]
                assert len(found) == len(value)
                assert all((a == b).all() for a, b in zip(found, value, strict=True))
            else:
                assert np.array_equal(np.asarray(found), np.asarray(value)), (column, found)


if __name__ == "__main__":
    records = mds_records()
    _write(
        "mds", MDS_COLUMNS, [_with_pictures(r) for r in records], size_limit=6000, hashes=["sha1"]
    )
    _check("mds", records)
    for packing in ("zstd", "gz", "bz2", "br", "snappy"):
        columns = {"x": "int", "text": "str"}
        _write(f"mds-{packing}", columns, small_records(), size_limit=300, compression=packing)
        _check(f"mds-{packing}", small_records())
    _write("mds-pkl", {"x": "pkl"}, [{"x": {n}} for n in range(2)])
