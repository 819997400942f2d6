"""Files behind one source: 10 to 10,000, with as many records in all of them together."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.growth.axis import Axis, Variant, streamed

RECORDS = 80_000
BATCH = 32


def write_lines(path: Path, records: range) -> None:
    path.write_text("".join(json.dumps({"x": x}) + "\n" for x in records))


def write_array_record(path: Path, records: range) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1")
    for x in records:
        writer.write(x.to_bytes(8, "little"))
    writer.close()


def write_parquet(path: Path, records: range) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": list(records)}), path, compression="none")


def write_tar(path: Path, records: range) -> None:
    with tarfile.open(path, "w") as tar:
        for x in records:
            member = tarfile.TarInfo(f"{x:08d}.txt")
            member.size = 8
            tar.addfile(member, io.BytesIO(x.to_bytes(8, "little")))


WRITE: dict[str, tuple[str, Callable[[Path, range], None]]] = {
    "lines": (".jsonl", write_lines),
    "lines_in_order": (".jsonl", write_lines),
    "array_record": (".array_record", write_array_record),
    "parquet": (".parquet", write_parquet),
    "parquet_streams": (".parquet", write_parquet),
    "tar": (".tar", write_tar),
}


def prepare(variant: str, count: int, folder: str) -> list[str]:
    """Writes the files; nothing has read them yet, so no index of them is kept."""
    ending, write = WRITE[variant]
    each = RECORDS // count
    paths = [Path(folder, f"{number:05d}{ending}") for number in range(count)]
    for number, path in enumerate(paths):
        write(path, range(number * each, (number + 1) * each))
    return [str(path) for path in paths]


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
