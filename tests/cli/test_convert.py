"""Conversions of awkward records, and conversions that are disturbed."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bushel
from bushel.cli.main import main
from bushel.write.writers import TARGETS, to_members
from tests.patience import PATIENCE_SECONDS
from tests.thorough import usually

ENDINGS = {name: target.endings[0] for name, target in TARGETS.items()}
Says = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path / "cache"))


def lines(folder: Path, records: list[Any]) -> Path:
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def run(*arguments: Any) -> int:
    return main([str(argument) for argument in (*arguments, "--workers", "0")])


def read(folder: Path, pattern: str) -> list[Any]:
    source = bushel.open(str(folder / pattern))
    return [source[key] for key in range(len(source))]


# Tables have one schema, however many files.

LATE: list[tuple[list[Any], str]] = [
    ([{"x": None}] * 3 + [{"x": 1}] * 3, "int64"),
    ([{"x": 1}] * 3 + [{"x": 0.5}] * 3, "double"),
    ([{"x": []}] * 3 + [{"x": ["a"]}] * 3, "list<element: string>"),
    ([{"x": {"a": 1}}] * 3 + [{"x": {"a": 1, "b": 2}}] * 3, "struct<a: int64, b: int64>"),
    ([{"y": 1}] * 3 + [{"x": 1, "y": 1}] * 3, "int64"),
    ([{"x": 1}], "int64"),
]


@pytest.mark.parametrize(("records", "kind"), LATE, ids=[kind for _, kind in LATE])
def test_shards_have_one_schema(tmp_path: Path, records: list[Any], kind: str) -> None:
    path = lines(tmp_path, records)
    assert run("convert", path, tmp_path / "out.parquet", "--shards", 2) == 0
    schemas = [pq.read_schema(shard) for shard in sorted(tmp_path.glob("out-*"))]
    assert [str(schema.field("x").type) for schema in schemas] == [kind] * 2
    assert len(read(tmp_path, "out-*")) == len(records)


def test_tables_keep_their_types(tmp_path: Path) -> None:
    """Also where a shard has a null, which numpy has not."""
    table = pa.table(
        {
            "i": pa.array([1, None, 3, 4], pa.int32()),
            "t": pa.array([1, None, 3, 4], pa.timestamp("us", "UTC")),
            "word": pa.array(["a", None, "a", "b"]).dictionary_encode(),
            "list": pa.array([[1], None, [], [2, 3]], pa.list_(pa.int16())),
            "half": pa.array([1, None, 3, 4], pa.float16()),
            "struct": [{"a": b"\0"}, None, {"a": None}, {"a": b""}],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    for to in ("parquet", "arrow"):
        out = tmp_path / f"out.{to}"
        assert run("convert", tmp_path / "in.parquet", out, "--shards", 2) == 0
    again = pq.read_table(sorted(tmp_path.glob("out-*.parquet")))
    assert again.equals(table.set_column(2, "word", table["word"].cast(pa.string())))
    assert str(read(tmp_path, "out-*.arrow")) == str(read(tmp_path, "in.parquet"))


def test_records_that_were_not_looked_at(tmp_path: Path, capsys: Says) -> None:
    path = lines(tmp_path, [{"x": {"a": 1}}, {"x": {"a": 1}}, {"x": {"a": 1, "b": 2}}])
    out = tmp_path / "out.parquet"
    assert run("convert", path, out, "--look-at", 1) == 1
    told = capsys.readouterr().err
    assert "the values of 'x' in records 0 to 2 of this file are not struct<a: int64>" in told
    assert "--look-at sets the number" in told and not out.exists()
    assert run("convert", path, out, "--look-at", 3) == 0
    assert read(tmp_path, "out.parquet")[2] == {"x": {"a": 1, "b": 2}}


# No record is lost in silence.


@pytest.mark.parametrize("to", ["tfrecord", "arrayrecord", "parquet", "arrow"])
def test_records_that_are_none(tmp_path: Path, to: str) -> None:
    path = lines(tmp_path, [{"a": 1}, None, {"a": 3}])
    assert run("convert", path, tmp_path / f"out{ENDINGS[to]}") == 0
    assert len(read(tmp_path, f"out{ENDINGS[to]}")) == 3


@pytest.mark.parametrize(
    ("records", "to", "words"),
    [
        ([{"a": 1}, {}], "tar", "record 1 cannot be written to a tar file, where a record without"),
        ([{}, {}], "parquet", "records 0 to 1 of this file have no values"),
        ([{"__key__": "k", "a": 1}, {"__key__": "k", "b": 2}], "tar", "have the same `__key__`"),
        ([{"a": 1, "A": 2}], "tar", "two of its parts would be 'A.cls'"),
        ([{"a/b": 1, "a": {"b": 2}}], "tfrecord", "there are two features 'a/b'"),
        ([{"a": 2**70}], "parquet", "the values of 'a' in records 0 to 0 of this file cannot be"),
        ([{"a": {}}], "parquet", "Parquet cannot hold these records"),
        ([{"a": 1}, {"a": "x"}], "arrow", "the values of 'a' in records 0 to 1 of this file"),
        ([{"a": "\ud800"}], "tar", "'a' of record 0 cannot be written to a tar file"),
    ],
)
def test_what_a_format_cannot_hold(
    tmp_path: Path, records: list[Any], to: str, words: str, capsys: Says
) -> None:
    out = tmp_path / f"out{ENDINGS[to]}"
    assert run("convert", lines(tmp_path, records), out) == 1
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1
    assert not out.exists() and not list(tmp_path.glob("*convert*"))


def test_keys_with_dots() -> None:
    """Before a dot a key would end, and two samples be one."""
    assert to_members({"__key__": "v1.0/img.1", "x": 1}) == [("v1.0/img%2E1.x.cls", b"1")]


# Disturbances.


def started(*arguments: Any, **more: Any) -> "subprocess.Popen[str]":
    program = [sys.executable, "-m", "bushel", *map(str, arguments)]
    return subprocess.Popen(
        program,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *children(child)]
    return found


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


# Imported by every Python that is started with its folder in the path.
_STOP_BEFORE_THE_END = """
import os, time
replace = os.replace

def wait_and_replace(source, target):
    while str(target).endswith("part-00007"):
        time.sleep(0.01)
    replace(source, target)

os.replace = wait_and_replace
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_parallel_conversion_that_is_stopped(tmp_path: Path, sent: signal.Signals) -> None:
    """It leaves neither processes nor files, and what was whole is not written again."""
    records = [{"id": number, "text": "word " * 50} for number in range(1200)]
    file, work = lines(tmp_path, records), tmp_path / ".out.tar.bushel-convert"
    arguments = ["convert", file, tmp_path / "out.tar", "--shards", 8, "--workers", 2]
    (tmp_path / "sitecustomize.py").write_text(_STOP_BEFORE_THE_END)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = started(*arguments, env={**os.environ, "PYTHONPATH": path})
    wait_until(lambda: (work / "part-00000").exists() or process.poll() is not None)
    workers = children(process.pid)
    os.killpg(process.pid, sent) if sent == signal.SIGINT else process.send_signal(sent)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == (130 if sent == signal.SIGINT else -sent), said
    assert "Traceback" not in said
    assert not list(tmp_path.glob("out*"))
    wait_until(lambda: not any(map(is_alive, workers)))
    again = started(*arguments)
    out, said = again.communicate(timeout=PATIENCE_SECONDS)
    assert again.returncode == 0, said
    assert "records were written before" in said and out.startswith("1,200 records")
    source = bushel.open(str(tmp_path / "out-*.tar"))
    assert len(source) == len(records)
    assert source[1199]["id.cls"] == b"1199"
    assert not work.exists()


@pytest.mark.parametrize("to", usually(sorted(TARGETS), "arrayrecord", "parquet", "tar"))
def test_a_disk_that_is_full(tmp_path: Path, to: str) -> None:
    letters = np.random.default_rng(0).integers(97, 123, (300, 2000), dtype=np.uint8)
    path = lines(tmp_path, [{"text": row.tobytes().decode()} for row in letters])

    def with_little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    out = tmp_path / f"out{ENDINGS[to]}"
    process = started("convert", path, out, "--workers", 0, preexec_fn=with_little_room)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "part-00000' cannot be written: " in said and "too large" in said
    assert said.count("\n") == 1
    assert not out.exists() and not list(tmp_path.glob("*convert*"))


def test_a_file_of_another_process_is_left_alone(tmp_path: Path, capsys: Says) -> None:
    """What was being written when it was killed is not taken for a whole file, and goes."""
    path = lines(tmp_path, [{"x": number} for number in range(10)])
    arguments = ["convert", path, tmp_path / "out.tfrecord", "--shards", 2]
    work = tmp_path / ".out.tfrecord.bushel-convert"
    assert run(*arguments) == 0
    shutil.rmtree(work, ignore_errors=True)
    for shard in tmp_path.glob("out-*"):
        shard.unlink()
    work.mkdir()
    (work / "part-00000.123-abcd.half").write_bytes(b"not whole")
    assert run(*arguments) == 0
    assert "before" not in capsys.readouterr().err
    assert len(read(tmp_path, "out-*")) == 10 and not work.exists()


def test_folders_that_cannot_be_written(tmp_path: Path, capsys: Says) -> None:
    path = lines(tmp_path, [{"x": 1}])
    (tmp_path / ".out.tar.bushel-convert").write_text("a file, where a folder should be")
    assert run("convert", path, tmp_path / "out.tar") == 1
    assert ".out.tar.bushel-convert' is no folder" in capsys.readouterr().err


def test_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lines(tmp_path, [{"x": 1}])
    assert run("convert", "~/*.jsonl", tmp_path / "out.tar") == 0
    assert len(read(tmp_path, "out.tar")) == 1


def test_numbers_that_json_has_not(tmp_path: Path, capsys: Says) -> None:
    assert main(["head", str(lines(tmp_path, [{"x": float("nan"), "y": 1.5}])), "--json"]) == 0
    assert capsys.readouterr().out == '{"record": 0, "value": {"x": "nan", "y": 1.5}}\n'


def test_names_that_are_no_text(tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode(b"out\xff.parquet")
    process = started("convert", lines(tmp_path, [{"x": 1}]), out, "--workers", 0)
    said, wrong = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, wrong
    assert "1 records in" in said and "out\\udcff.parquet" in said
    assert out.exists()
