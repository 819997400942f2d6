"""The command line, as people and programs use it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.cli.main import main
from bushel.errors import PlanError
from bushel.sources.tfrecord.example import parse_example
from bushel.write.writers import TARGETS, to_bytes, to_members, to_row

RECORDS = [{"id": i, "word": "ab" * (i % 4), "half": i / 2, "xs": [i, i + 1]} for i in range(300)]
ENDINGS = {name: target.endings[0] for name, target in TARGETS.items()}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


def bushel_says(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_inspect_for_people(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = bushel_says(capsys, "inspect", lines)
    assert "format   jsonl" in said and "records  300" in said and "1 file, " in said
    assert re.search(r"^half +float +0\.0$", said, re.MULTILINE)
    assert re.search(r"^xs +list +\[0, 1\]$", said, re.MULTILINE)


def test_inspect_for_programs(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(bushel_says(capsys, "inspect", lines, "--json"))
    assert (found["format"], found["records"], found["files"]) == ("jsonl", 300, 1)
    assert found["bytes"] == lines.stat().st_size
    assert found["schema"] == {"id": "int", "word": "str", "half": "float", "xs": "list"}
    assert found["first_record"] == RECORDS[0]


def test_head_and_sample(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = bushel_says(capsys, "head", lines, "-n", "2", "--json").splitlines()
    assert [json.loads(line)["value"] for line in first] == RECORDS[:2]
    shown = bushel_says(capsys, "head", lines, "-n", "1")
    assert shown.splitlines() == ["0:", "  id: 0", "  word: ''", "  half: 0.0", "  xs: [0, 1]"]
    samples = [bushel_says(capsys, "sample", lines, "--json", "--seed", "4") for _ in range(2)]
    assert samples[0] == samples[1]
    keys = [json.loads(line)["record"] for line in samples[0].splitlines()]
    assert len(set(keys)) == 5 and keys != sorted(keys)
    assert all(json.loads(line)["value"]["id"] in keys for line in samples[0].splitlines())
    assert len(bushel_says(capsys, "sample", lines, "-n", "1000", "--json").splitlines()) == 300


def test_index(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "jsonl: 300 records" in bushel_says(capsys, "index", lines)
    assert [path.name for path in lines.parent.iterdir() if "index" in path.name]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("to", sorted(TARGETS))
def test_convert(to: str, workers: int, lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = lines.with_name(f"out{ENDINGS[to]}")
    said = bushel_says(capsys, "convert", lines, out, "--workers", workers)
    assert said.startswith(f"300 records in {out}, ")
    assert _read_back(to, [out]) == RECORDS
    assert sorted(path.name for path in lines.parent.iterdir() if path.name[0] != ".") == [
        "in.jsonl",
        out.name,
    ]
    assert not [path for path in lines.parent.iterdir() if "convert" in path.name]


def _read_back(to: str, paths: list[Path]) -> list[Any]:
    source = bushel.open([str(path) for path in paths])
    records = [source[key] for key in range(len(source))]
    if to == "csv":  # Which has no types.
        texts = ("word",)
        return [
            {name: cell if name in texts else json.loads(cell) for name, cell in record.items()}
            for record in records
        ]
    if to in ("tfrecord", "arrayrecord"):
        examples = [parse_example(record) for record in records]
        return [
            {
                "id": example["id"].item(),
                "word": example["word"][0].decode(),
                "half": example["half"].item(),
                "xs": example["xs"].tolist(),
            }
            for example in examples
        ]
    if to == "tar":
        return [
            {
                "id": int(record["id.cls"]),
                "word": record["word.txt"].decode(),
                "half": json.loads(record["half.json"]),
                "xs": json.loads(record["xs.json"]),
            }
            for record in records
        ]
    return [
        {name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
        for row in records
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_shards(workers: int, lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = lines.with_name("out.parquet")
    bushel_says(capsys, "convert", lines, out, "--shards", 3, "--workers", workers)
    shards = [out.with_name(f"out-0000{number}-of-00003.parquet") for number in range(3)]
    assert all(shard.exists() for shard in shards) and not out.exists()
    assert _read_back("parquet", shards) == RECORDS
    source = bushel.open(str(out.with_name("out-*.parquet")))
    assert len(source) == 300


def test_a_file_that_is_there_stays(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = lines.with_name("out.tfrecord")
    out.write_bytes(b"precious")
    assert main(["convert", str(lines), str(out), "--workers", "0"]) == 1
    assert "is there already; --overwrite replaces it" in capsys.readouterr().err
    assert out.read_bytes() == b"precious"
    bushel_says(capsys, "convert", lines, out, "--workers", 0, "--overwrite")
    assert _read_back("tfrecord", [out]) == RECORDS


SLOW = """
import sys, os
from bushel.cli import convert
from bushel.write import writers
from bushel.cli.main import main

real = writers.TARGETS["tfrecord"].write

def slow(path, records):
    real(path, records)
    # In the last shard the conversion stops for ever, with the others whole.
    if "part-00003" in path:
        print("here", flush=True)
        sys.stdin.read()

writers.TARGETS["tfrecord"] = writers.Target("tfrecord", (".tfrecord",), writers.to_bytes, slow)
main(sys.argv[1:])
"""


def test_a_killed_conversion_goes_on(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = lines.with_name("out.tfrecord")
    arguments = ["convert", str(lines), str(out), "--shards", "4", "--workers", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    assert not list(lines.parent.glob("out*"))
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert "225 of 300 records were written before" in told.err
    assert _read_back("tfrecord", sorted(lines.parent.glob("out*"))) == RECORDS


def test_another_source_starts_anew(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = lines.with_name("out.tfrecord")
    work = lines.with_name(".out.tfrecord.bushel-convert")
    work.mkdir()
    (work / "plan.json").write_text('{"version": 1}')
    (work / "part-00000").write_bytes(b"of another plan")
    bushel_says(capsys, "convert", lines, out, "--workers", 0)
    assert _read_back("tfrecord", [out]) == RECORDS


def test_a_conversion_that_was_moving_its_files(
    lines: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = lines.with_name("out.tfrecord")
    arguments = ["convert", str(lines), str(out), "--shards", "3", "--workers", "0"]
    replace = os.replace

    def stop_at_the_second(source: Any, target: Any) -> None:
        if str(target).endswith("00001-of-00003.tfrecord"):
            raise OSError("the disk is full")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop_at_the_second)
        assert main(arguments) == 1
    assert "the disk is full" in capsys.readouterr().err
    assert main(arguments) == 0
    assert _read_back("tfrecord", sorted(lines.parent.glob("out*"))) == RECORDS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "nothing.parquet"], "there is no file 'nothing.parquet'"),
        (["inspect", "in.jsonl", "--format", "parquet"], "in.jsonl"),
        (["convert", "in.jsonl", "out.xyz"], "does not end in .array_record"),
        (["convert", "in.jsonl", "out.tar", "--shards", "0"], "--shards"),
        (["convert", "in.jsonl", "nowhere/out.tar"], "there is no folder"),
        (["head", "in.jsonl", "-n", "-1"], "-n"),
        (["inspect", "in.jsonl", "--option", "nonsense"], "NAME=VALUE"),
        (["inspect", "in.jsonl", "--option", "nonsense=1"], "JsonLinesDataSource`: none."),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    words: str,
    lines: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(lines.parent)
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert words in told and told.startswith("bushel: ") and "Traceback" not in told


def test_as_a_program(lines: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "bushel", "head", str(lines), "-n", "1"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout.startswith("0:\n  id: 0\n")
    version = subprocess.run(
        [sys.executable, "-m", "bushel", "--version"], check=True, capture_output=True, text=True
    )
    assert version.stdout == f"bushel {bushel.__version__}\n"


def test_a_reader_that_has_seen_enough(lines: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "bushel", "head", str(lines), "-n", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


# What becomes of a record.


def test_arrays_in_examples_keep_their_shape() -> None:
    example = parse_example(to_bytes({"image": np.arange(6).reshape(2, 3), "deep": {"x": 1.5}}))
    assert example["image"].tolist() == [0, 1, 2, 3, 4, 5]
    assert example["image/shape"].tolist() == [2, 3]
    assert example["deep/x"].tolist() == [1.5]


def test_what_no_example_can_hold() -> None:
    with pytest.raises(PlanError, match=r"record 7 cannot be written as a tf\.train\.Example"):
        to_bytes({"x": object()}, 7)


def test_rows_and_members() -> None:
    assert to_row((1, "a")) == {"0": 1, "1": "a"}
    assert to_row("text") == {"text": "text"}
    assert to_members(b"abc", 3) == [("000000003.data", b"abc")]
    members = dict(to_members({"__key__": "k", "a/b": "x", "n": np.arange(2), "none": None}))
    assert list(members) == ["k.a%2Fb.txt", "k.n.npy"]


@pytest.mark.parametrize("to", ["parquet", "arrow"])
def test_arrays_in_tables(to: str, tmp_path: Path) -> None:
    rows = [
        {"image": np.arange(6 + i).reshape(1, -1), "flag": np.bool_(i % 2), "name": b"x" * i}
        for i in range(5)
    ]
    path = tmp_path / f"out{ENDINGS[to]}"
    TARGETS[to].write(str(path), rows)
    source = bushel.open(path)
    for i, row in enumerate(rows):
        assert [list(part) for part in source[i]["image"]] == row["image"].tolist()
        assert bool(source[i]["flag"]) == bool(row["flag"])
        assert source[i]["name"] == row["name"]


@pytest.mark.parametrize("to", sorted(TARGETS))
def test_no_records(to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text("")
    out = tmp_path / f"out{ENDINGS[to]}"
    bushel_says(capsys, "convert", tmp_path / "in.jsonl", out, "--workers", 0)
    assert len(bushel.open(out)) == 0


def test_rows_of_another_kind(tmp_path: Path) -> None:
    rows = [{"x": 1} for _ in range(1024)]
    with pytest.raises(PlanError, match=r"records 1024 to 1024 of this file have \['y'\]"):
        TARGETS["parquet"].write(str(tmp_path / "a.parquet"), [*rows, {"x": 1, "y": 2}])
    with pytest.raises(PlanError, match="'x' in records 1024 to 1024 of this file are not int64"):
        TARGETS["parquet"].write(str(tmp_path / "a.parquet"), [*rows, {"x": "word"}])
