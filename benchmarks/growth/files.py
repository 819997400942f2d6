"""Files behind one source: 10 to 10,000 of them, all alike."""

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.growth.axis import Axis, Variant, streamed

EACH = 32  # records of a file
BATCH = 32


def lines_file(records: int) -> bytes:
    return b"".join(json.dumps({"x": x}).encode() + b"\n" for x in range(records))


def array_record_file(records: int) -> bytes:
    from array_record.python.array_record_module import ArrayRecordWriter

    with tempfile.NamedTemporaryFile(suffix=".array_record") as file:
        writer = ArrayRecordWriter(file.name, "group_size:1")
        for x in range(records):
            writer.write(x.to_bytes(8, "little"))
        writer.close()
        return Path(file.name).read_bytes()


def parquet_file(records: int) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table({"x": list(range(records))}), file, compression="none")
    return file.getvalue()


def tar_file(records: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for x in range(records):
            member = tarfile.TarInfo(f"{x:08d}.txt")
            member.size = 8
            tar.addfile(member, io.BytesIO(x.to_bytes(8, "little")))
    return file.getvalue()


CONTENT: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "lines": (".jsonl", lines_file),
    "lines_in_order": (".jsonl", lines_file),
    "array_record": (".array_record", array_record_file),
    "parquet": (".parquet", parquet_file),
    "parquet_streams": (".parquet", parquet_file),
    "tar": (".tar", tar_file),
}


def prepare(variant: str, count: int, folder: str) -> list[str]:
    """Writes the files, all alike; nothing has read them yet, so no index of them is kept."""
    ending, content = CONTENT[variant]
    data = content(EACH)
    paths = [os.path.join(folder, f"{number:05d}{ending}") for number in range(count)]
    for path in paths:
        with open(path, "wb") as file:
            # What is empty in it (an ArrayRecord file is mostly that) takes no room.
            file.write(data.rstrip(b"\0"))
            file.truncate(len(data))
    return paths


def shuffled(lib: Any, source: Any) -> Any:
    dataset = lib.MapDataset.source(source).shuffle(seed=1).repeat()
    return streamed(lib, dataset).batch(BATCH)


def lines(lib: Any, _: int, paths: list[str]) -> Any:
    return shuffled(lib, lib.sources.JsonLinesDataSource(paths))


def lines_in_order(lib: Any, _: int, paths: list[str]) -> Any:
    source = lib.MapDataset.source(lib.sources.JsonLinesDataSource(paths))
    return streamed(lib, source.repeat()).batch(BATCH)


def array_record(lib: Any, _: int, paths: list[str]) -> Any:
    return shuffled(lib, lib.sources.ArrayRecordDataSource(paths))


def parquet(lib: Any, _: int, paths: list[str]) -> Any:
    return shuffled(lib, lib.sources.ParquetDataSource(paths))


def parquet_streams(lib: Any, _: int, paths: list[str]) -> Any:
    streams = [lib.experimental.ParquetIterDataset(path) for path in paths]
    whole = lib.experimental.InterleaveIterDataset(streams, cycle_length=8)
    return lib.experimental.RepeatIterDataset(whole).batch(BATCH)


def tar(lib: Any, _: int, paths: list[str]) -> Any:
    return shuffled(lib, lib.sources.TarDataSource(paths))


AXIS = Axis(
    name="files",
    title="files behind one source",
    sizes=(10, 100, 1000, 10_000),
    variants={
        "array_record": Variant("ArrayRecord, shuffled", array_record),
        "lines": Variant("JSON lines, shuffled", lines, grain=False),
        "lines_in_order": Variant("JSON lines, in order", lines_in_order, grain=False),
        "parquet": Variant("Parquet, shuffled", parquet, grain=False),
        "parquet_streams": Variant("Parquet, interleaved", parquet_streams),
        "tar": Variant("tar, shuffled", tar, grain=False),
    },
    prepare=prepare,
    patience=20.0,
)
