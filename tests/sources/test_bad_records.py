"""A damaged record in the middle of a file of each kind: all others are read, and it is known
where it is."""

import json
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import bushel
from bushel.sources import write_tfrecords

COUNT, BAD = 12, 5
PAYLOADS = [np.random.default_rng(number).bytes(900) for number in range(COUNT)]
TEXTS = [json.dumps({"id": number}).encode() for number in range(COUNT)]


def _json_lines(path: Path) -> int:
    path.write_bytes(b"\n".join(TEXTS) + b"\n")
    return _spoil(path, b'{"id": 5}')


def _tfrecord(path: Path) -> int:
    write_tfrecords(path, PAYLOADS)
    # The length, of which all after it depends.
    return _spoil(path, PAYLOADS[BAD], -12) - 12


def _tar(path: Path) -> int:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number, text in enumerate(TEXTS):
            member = tarfile.TarInfo(f"{number}.json")
            member.size = len(text)
            archive.addfile(member, BytesIO(text))
    return _spoil(path, b"5.json")


def _parquet(path: Path) -> int:
    table = pa.table({"id": range(COUNT), "data": PAYLOADS})
    pq.write_table(table, path, row_group_size=1, use_dictionary=False)
    column = pq.read_metadata(path).row_group(BAD).column(0)
    _spoil(path, PAYLOADS[BAD], -24)
    return int(column.data_page_offset)


def _array_record(path: Path) -> int:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for payload in PAYLOADS:
        writer.write(payload)
    writer.close()
    return _spoil(path, PAYLOADS[BAD])


def _spoil(path: Path, what: bytes, shift: int = 0) -> int:
    """Damages a file where these bytes are, and says where they are."""
    data = bytearray(path.read_bytes())
    place = data.index(what)
    for byte in range(4):
        data[place + shift + byte] ^= 0xFF
    path.write_bytes(data)
    return place


KINDS: dict[str, Callable[[Path], int]] = {
    "a.jsonl": _json_lines,
    "a.tfrecord": _tfrecord,
    "a.tar": _tar,
    "a.parquet": _parquet,
    "a.array_record": _array_record,
}


@pytest.mark.parametrize(("name", "write"), KINDS.items(), ids=KINDS)
def test_all_others_are_read(
    name: str, write: Callable[[Path], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path / "cache"))
    path, quarantine = tmp_path / name, tmp_path / "bad.jsonl"
    offset = write(path)
    source = bushel.open(path)
    ds = bushel.MapDataset.source(source).on_error("skip", quarantine=str(quarantine))
    assert len(list(ds.to_iter_dataset())) == COUNT - 1
    (line,) = map(json.loads, quarantine.read_text().splitlines())
    assert (line["file"], line["record"]) == (str(path), BAD)
    # A record of an ArrayRecord file begins with headers of the package's, of which we know little.
    assert offset - 100 * (write is _array_record) <= line["offset"] <= offset
    with pytest.raises((OSError, ValueError), match=path.name):
        source[BAD]
