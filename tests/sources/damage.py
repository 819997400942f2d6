"""Damages files of every format, and reads them: a program of its own, as it may end it.

`python -m tests.sources.damage FOLDER SEED COUNT FORMAT...` writes a line of JSON for each case
before it is read, and one for each problem.
"""

import bz2
import faulthandler
import gzip
import io
import json
import lzma
import os
import resource
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import bushel
from bushel.errors import FileError, PlanError
from bushel.sources import encode_example, write_tfrecords

COUNT = 40
# A case that takes so long hangs, on any machine.
HANG_SECONDS = 120
# Far more than any case needs, and far less than a damaged length asks for.
MOST_BYTES = 3 << 30


class Format(NamedTuple):
    """How a format is written and read.

    `checked` says that every byte of a record is under a checksum: what is read must be right.
    """

    name: str
    write: Callable[[Path], None]
    checked: bool = False
    options: Mapping[str, Any] = MappingProxyType({})


def _lines() -> bytes:
    return b"".join(json.dumps({"id": n, "text": "é" * n}).encode() + b"\n" for n in range(COUNT))


def _tokens(path: Path) -> None:
    np.save(path, np.arange(COUNT * 3, dtype=np.int32).reshape(COUNT, 3))


def _archive(path: Path) -> None:
    np.savez(path, x=np.arange(COUNT), y=np.ones((COUNT, 2), np.float32))


def _packed_archive(path: Path) -> None:
    np.savez_compressed(path, x=np.arange(COUNT), y=np.ones((COUNT, 2), np.float32))


def _table() -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "id": np.arange(COUNT),
            "text": [f"text {n}" for n in range(COUNT)],
            "data": [bytes([n]) * n for n in range(COUNT)],
            "lists": [list(range(n % 5)) for n in range(COUNT)],
            "nested": [[[n], []] for n in range(COUNT)],
            "record": [{"a": n, "b": str(n)} for n in range(COUNT)],
            "maybe": [n if n % 3 else None for n in range(COUNT)],
            "category": pa.array([f"k{n % 3}" for n in range(COUNT)]).dictionary_encode(),
        }
    )


def _parquet(**options: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import pyarrow.parquet as pq

        pq.write_table(_table(), path, row_group_size=15, **options)

    return write


def _arrow(path: Path) -> None:
    import pyarrow as pa

    table = _table()
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=15)


def _arrow_stream(path: Path) -> None:
    import pyarrow as pa

    table = _table()
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=15)


def _feather(path: Path) -> None:
    import pyarrow.feather

    pyarrow.feather.write_feather(_table(), str(path), compression="zstd", chunksize=15)


def _tar(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for number in range(COUNT):
            for ending, data in (("txt", f"text {number}".encode()), ("cls", b"%d" % number)):
                member = tarfile.TarInfo(f"part/{number:04d}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def _records() -> list[bytes]:
    return [f"record {number} ".encode() * number for number in range(COUNT)]


def _examples(path: Path) -> None:
    records = [
        {"id": n, "x": np.array([n, 0.5], np.float32), "b": b"abc" * n} for n in range(COUNT)
    ]
    write_tfrecords(path, map(encode_example, records))


def _array_record(group: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        from array_record.python.array_record_module import ArrayRecordWriter

        writer = ArrayRecordWriter(str(path), f"group_size:{group}")
        for record in _records():
            writer.write(record)
        writer.close()

    return write


def _bagz(path: Path) -> None:
    import bagz

    with bagz.Writer(str(path)) as writer:
        for record in _records():
            writer.write(record)


def _csv(path: Path) -> None:
    path.write_text("id,text\n" + "".join(f'{n},"a ""word"", {n}"\n' for n in range(COUNT)))


FORMATS: dict[str, Format] = {
    "text": Format("a.txt", lambda path: path.write_bytes(_lines()) and None),
    "json lines": Format("a.jsonl", lambda path: path.write_bytes(_lines()) and None),
    "gzip": Format(
        "a.jsonl.gz", lambda path: path.write_bytes(gzip.compress(_lines())) and None, checked=True
    ),
    "bzip2": Format(
        "a.jsonl.bz2", lambda path: path.write_bytes(bz2.compress(_lines())) and None, checked=True
    ),
    "xz": Format(
        "a.jsonl.xz", lambda path: path.write_bytes(lzma.compress(_lines())) and None, checked=True
    ),
    "csv": Format("a.csv", _csv, options={"columns": {"id": int, "text": str}}),
    "tar": Format("a.tar", _tar),
    "tar, decoded": Format("a.tar", _tar, options={"decode": True}),
    "npy": Format("a.npy", _tokens),
    "npz": Format("a.npz", _archive),
    "npz, compressed": Format("a.npz", _packed_archive, checked=True),
    "parquet": Format("a.parquet", _parquet(compression="none")),
    "parquet, compressed": Format("a.parquet", _parquet(compression="zstd")),
    "arrow": Format("a.arrow", _arrow),
    "arrow stream": Format("a.arrows", _arrow_stream),
    "feather": Format("a.feather", _feather),
    "tfrecord": Format("a.tfrecord", lambda path: write_tfrecords(path, _records()), checked=True),
    "tfrecord, features": Format(
        "a.tfrecord",
        _examples,
        options={"features": {"id": (int, ()), "x": (float, (2,)), "b": (bytes, ())}},
    ),
    "array record": Format("a.array_record", _array_record(1), checked=True),
    "array record, groups": Format("a.array_record", _array_record(7), checked=True),
    "bagz": Format("a.bagz", _bagz),
}


def damaged(data: bytes, random: Random) -> bytes:
    """A file with some damage, more often near its beginning and its end."""
    size = len(data)
    place = random.choice(
        [
            random.randrange(size),
            random.randrange(min(size, 96)),
            max(0, size - 1 - random.randrange(256)),
        ]
    )
    length = random.choice([1, 2, 4, 8, 64, 1000])
    spoiled = bytearray(data)
    match random.randrange(8):
        case 0 | 1:
            spoiled[place] ^= 1 << random.randrange(8)
        case 2:
            spoiled[place : place + length] = random.randbytes(len(data[place : place + length]))
        case 3:
            number = random.choice([2**60, 2**31 - 1, 2**63 - 1, 2**64 - 1, 2**40])
            spoiled[place : place + 8] = number.to_bytes(8, "little")[: size - place]
        case 4:
            del spoiled[place:]
        case 5:
            spoiled[place:place] = random.randbytes(length)
        case 6:
            del spoiled[place : place + length]
        case 7:
            spoiled[place : place + length] = bytes(len(data[place : place + length]))
    return bytes(spoiled)


def read_all(path: Path, options: Mapping[str, Any], random: Random) -> Iterator[str]:
    """Reads a file in several ways; yields its records as text."""
    source = bushel.open(path, **options)
    length = len(source)
    keys = list(range(min(length, 2 * COUNT)))
    random.shuffle(keys)
    try:
        yield from map(repr, source.__getitems__(keys))
    except FileError:
        # Some of them, one by one: one that is damaged takes no other along.
        for key in [*keys[:10], *([length - 1] if length else [])]:
            try:
                yield repr(source[key])
                source.place_of(key)
            except FileError as error:
                if path.name not in str(error):
                    raise
    read_columns = getattr(source, "read_columns", None)
    if read_columns is not None:
        read_columns(np.array(keys[:5], np.int64))


def problem_of(form: Format, path: Path, right: set[str], random: Random) -> str | None:
    """What is wrong with how a damaged file is read."""
    try:
        wrong = [record for record in read_all(path, form.options, random) if record not in right]
    except (FileError, PlanError) as error:  # A column that has another name now is not there.
        return None if path.name in str(error) else f"the file is not named: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return f"a wrong record: {wrong[0][:300]}" if wrong and form.checked else None


def main(folder: Path, seed: int, count: int, names: list[str]) -> None:
    os.environ["BUSHEL_CACHE"] = str(folder / "cache")
    for name in names:
        form = FORMATS[name]
        whole = folder / name / form.name
        whole.parent.mkdir()
        form.write(whole)
        data = whole.read_bytes()
        right = set(read_all(whole, form.options, Random(0)))
        assert right, name
        for number in range(count):
            print(json.dumps({"case": [name, number]}), flush=True)
            random = Random(f"{seed} {name} {number}")
            path = folder / name / f"{number}-{form.name}"
            path.write_bytes(damaged(data, random))
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            problem = problem_of(form, path, right, random)
            if problem is not None:
                print(json.dumps({"problem": [name, number, problem]}), flush=True)


if __name__ == "__main__":
    # For what a damaged length may ask for. (The limit is on addresses: threads have many.)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
