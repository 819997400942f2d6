"""What `bushel convert` makes of records: lines, tables of text, samples; and help on the way."""

import csv
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.cli.main import main
from tests.cli.test_convert import lines, read, run
from tests.later import later

tariterators = later("webdataset.tariterators")

Says = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path / "cache"))


RECORDS: list[Any] = [
    {"id": 1, "text": 'a "quoted", é\nline', "x": [1.5, 2.0], "none": None},
    {"id": 2, "text": "", "x": [], "none": None},
]


@pytest.mark.parametrize("through", ["parquet", "arrow", "jsonl"])
def test_lines_of_json_are_what_they_were(tmp_path: Path, through: str) -> None:
    there, back = tmp_path / f"there.{through}", tmp_path / "back.jsonl"
    assert run("convert", lines(tmp_path, RECORDS), there) == 0
    assert run("convert", there, back) == 0
    assert [json.loads(line) for line in back.read_text().splitlines()] == RECORDS


def test_csv_is_read_by_others(tmp_path: Path) -> None:
    assert run("convert", lines(tmp_path, RECORDS), tmp_path / "out.csv") == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [record["text"] for record in RECORDS]
    assert [json.loads(row["x"]) for row in rows] == [[1.5, 2.0], []]
    assert rows[0]["none"] == "" and [int(row["id"]) for row in rows] == [1, 2]


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_bytes_are_no_text(tmp_path: Path, capsys: Says, ending: str) -> None:
    bushel.sources.write_tfrecords(str(tmp_path / "in.tfrecord"), [b"\xff"])
    assert run("convert", tmp_path / "in.tfrecord", tmp_path / f"out.{ending}") == 1
    assert "is bytes, which is no text; tar, Parquet" in capsys.readouterr().err


def test_rows_of_a_table_have_the_same_fields(tmp_path: Path, capsys: Says) -> None:
    assert run("convert", lines(tmp_path, [{"a": 1}, {"b": 2}]), tmp_path / "out.csv") == 1
    told = capsys.readouterr().err
    assert "record 1 of this file has the fields ['b']" in told and "['a']" in told


def test_a_folder_of_images_is_what_webdataset_expects(tmp_path: Path) -> None:
    images = tmp_path / "train"
    for name in ("cat", "dog"):
        (images / name).mkdir(parents=True)
        for number in range(2):
            (images / name / f"{number}.JPG").write_bytes(f"{name} {number}".encode())
    assert run("convert", images, tmp_path / "out.tar", "--format", "images") == 0
    with tarfile.open(tmp_path / "out.tar") as archive:
        assert archive.getnames() == [
            f"{name}/{number}.{ending}"
            for name in ("cat", "dog")
            for number in range(2)
            for ending in ("jpg", "cls")
        ]
    with (tmp_path / "out.tar").open("rb") as file:  # It would leave the file open.
        opened = [{"url": "out.tar", "stream": file}]
        theirs = list(tariterators.group_by_keys(tariterators.tar_file_expander(opened)))
    assert [sample["jpg"] for sample in theirs] == [b"cat 0", b"cat 1", b"dog 0", b"dog 1"]
    assert [int(sample["cls"]) for sample in theirs] == [0, 0, 1, 1]
    assert [np.asarray(record["jpg"]).tobytes() for record in read(tmp_path, "out.tar")] == [
        sample["jpg"] for sample in theirs
    ]


@pytest.mark.parametrize("command", ["inspect", "index", "head", "sample", "convert", "run"])
def test_help_has_examples(command: str, capsys: Says) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    told = capsys.readouterr().out
    assert "examples:\n" in told and f"  bushel {command} " in told


def test_a_shell_completes(tmp_path: Path, capsys: Says) -> None:
    scripts = {}
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        scripts[shell] = capsys.readouterr().out
        assert "convert" in scripts[shell] and "shards" in scripts[shell]
    (tmp_path / "bushel").write_text(scripts["bash"])
    asked = f"""
    source {tmp_path}/bushel
    COMP_WORDS=(bushel conv); COMP_CWORD=1; _bushel; echo "${{COMPREPLY[@]}}"
    COMP_WORDS=(bushel convert --over); COMP_CWORD=2; _bushel; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["convert", "--overwrite"]
