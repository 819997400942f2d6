"""What is not written: pipelines, paths and options that do not fit, and disks that are full."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset
from bushel.errors import BadRecordsError, FileError, PlanError
from bushel.write.writers import write_array_record
from tests.patience import PATIENCE_SECONDS
from tests.write import parts
from tests.write.test_write import RECORDS, contents, dataset


def test_another_pipeline(tmp_path: Path) -> None:
    to = tmp_path / "a-*.jsonl"
    dataset().write(to, shards=2, workers=0)
    before = contents(tmp_path)
    assert dataset().write(to, shards=2, workers=0).records == RECORDS
    assert dataset().write(to, workers=0).records == RECORDS
    with pytest.raises(PlanError, match="has been written by another pipeline: `shards` was 2"):
        dataset().write(to, shards=3, workers=0)
    with pytest.raises(PlanError, match="by another pipeline: `filter` is new"):
        dataset().filter(parts.odd).write(to, shards=2, workers=0)
    assert contents(tmp_path) == before
    again = dataset().filter(parts.odd).write(to, shards=3, workers=0, overwrite=True)
    assert again.records == RECORDS // 2 == len(bushel.open(tmp_path))
    assert len(list(tmp_path.glob("a-*"))) == 3


def test_another_pipeline_that_was_not_finished(tmp_path: Path) -> None:
    to = tmp_path / "a-*.jsonl"
    failing = MapDataset.range(RECORDS).map(parts.fails_at_57)
    with pytest.raises(ValueError, match="57"):
        failing.write(to, shards=10, workers=0)
    assert len(list(tmp_path.glob("a-*"))) == 1
    with pytest.raises(PlanError, match=r"begun by another pipeline, and .*is `map"):
        MapDataset.range(RECORDS).map(parts.record).write(to, shards=10, workers=0)
    with pytest.raises(FileError, match="is being written, or was left unfinished"):
        bushel.open(tmp_path)
    with pytest.raises(FileError, match="is being written, or was left unfinished"):
        bushel.open(to)
    MapDataset.range(RECORDS).map(parts.record).write(to, shards=10, workers=0, overwrite=True)
    assert len(bushel.open(to)) == RECORDS


def test_files_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "a-00000-of-00002.jsonl").write_text("mine")
    with pytest.raises(PlanError, match="is there already, and nothing says what made it"):
        dataset().write(tmp_path / "a-*.jsonl", shards=4, workers=0)
    assert (tmp_path / "a-00000-of-00002.jsonl").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_function_that_fails(tmp_path: Path) -> None:
    """The error says which shard it was, which element, and which record that is made of."""
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(f"{number}\n" for number in range(100)))
    ds = MapDataset.source(bushel.open(lines)).shuffle(seed=2).map(parts.fails_at_57)
    for workers in (0, 2):
        with pytest.raises(ValueError, match="no such thing as 57") as failed:
            ds.write(tmp_path / "out" / "a-*.jsonl", shards=10, workers=workers)
        notes = " ".join(failed.value.__notes__)
        position = next(n for n in range(100) if ds._parent[n] == 57)
        assert f"in shard {position // 10} of 10, element {position}, made of record 57 of" in notes
        assert str(lines) in notes
    written = ds.write(
        tmp_path / "out" / "a-*.jsonl", shards=10, workers=2, on_error="skip", overwrite=True
    )
    assert written.records == 99 and written.bad == 1


def test_the_budget_is_that_of_all_shards(tmp_path: Path) -> None:
    bad = MapDataset.range(100).map(lambda n: 1 // (n % 20))
    within = bad.on_error("skip", budget=5).write(tmp_path / "a-*.jsonl", shards=5, workers=0)
    assert within.bad == 5 and within.records == 95
    with pytest.raises(BadRecordsError, match="budget of 4"):
        bad.on_error("skip", budget=4).write(tmp_path / "b-*.jsonl", shards=5, workers=0)


def test_two_at_once(tmp_path: Path) -> None:
    inner: list[str] = []

    def meddle(number: int) -> dict[str, int]:
        if number == 5 and not inner:
            inner.append("")
            with pytest.raises(PlanError, match="is being written by another process") as refused:
                MapDataset.range(3).write(tmp_path / "a-*.jsonl", workers=0)
            inner.append(str(refused.value))
        return {"n": number}

    MapDataset.range(10).map(meddle).write(tmp_path / "a-*.jsonl", workers=0)
    assert len(inner) == 2 and len(bushel.open(tmp_path)) == 10


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (lambda: MapDataset.range(3).repeat(), {}, "this dataset is endless"),
        (lambda: MapDataset.range(3).repeat().to_iter_dataset(), {}, "this dataset is endless"),
        (lambda: MapDataset.range(3), {"shards": 0}, "`shards` is at least 1"),
        (lambda: MapDataset.range(3), {"workers": -1}, "`workers` is a number of processes"),
        (lambda: MapDataset.range(3), {"shards": 1, "shard_records": 1}, "say the same in two"),
        (lambda: MapDataset.range(3), {"on_error": "replace"}, "`on_error` is 'raise' or 'skip'"),
        (lambda: MapDataset.range(3), {"json_fields": ["x"]}, "have no field 'x' to be JSON"),
        (lambda: MapDataset.range(3).to_iter_dataset(), {"shards": 2}, "say `shard_records=`"),
        (lambda: MapDataset.range(3), {"shards": 10**18}, "makes 1,000,000,000,000,000,000 shards"),
        (lambda: MapDataset.range(10**7), {"shard_records": 2}, "more `shard_records`"),
    ],
)
def test_what_cannot_be(tmp_path: Path, make: Any, options: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        make().write(tmp_path / "a-*.jsonl", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("to", "options", "words"),
    [
        ("a-*.xyz", {}, "does not say by its ending"),
        ("a-*.jsonl", {"format": "xyz"}, "there is no format 'xyz' to write"),
        ("*/a-*.jsonl", {}, "is to have one star, in its last part"),
        ("a?-*.jsonl", {}, r"'a\?-\*.jsonl' has '\?' in it, which stands for other letters"),
        ("a.jsonl", {"shards": 2}, "is one file, and several shards need a star"),
        ("", {}, "is a folder: add `format=`"),
        ("a-*", {}, r"\(.arrayrecord, .tfrecord, .parquet, .arrow, .tar, .jsonl, .tokens\)"),
        ("a\0-*.jsonl", {}, "has a null byte in it"),
    ],
)
def test_paths_that_cannot_be(tmp_path: Path, to: str, options: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        MapDataset.range(3).write(f"{tmp_path}/{to}", **options)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    """Files may be called so, but not those that a package writes which takes text."""
    to = f"{tmp_path}/a\udcff-*"
    with pytest.raises(FileError, match="no text in UTF-8, and no ArrayRecord file can be called"):
        MapDataset.range(3).write(f"{to}.arrayrecord", workers=0)
    other = f"{tmp_path}/b\udcff-*.tfrecord"
    assert MapDataset.range(3).write(other, workers=0).records == 3
    assert len(bushel.open(other, verify=True)) == 3


@pytest.mark.parametrize("format", ["parquet", "arrow", "tfrecord", "jsonl", "tar"])
def test_files_are_called_as_their_format(tmp_path: Path, format: str) -> None:
    MapDataset.range(3).write(tmp_path, format=format, workers=0)
    assert (tmp_path / f"shard-00000-of-00001.{format}").is_file()


@pytest.mark.parametrize("to", [None, 5, b"a-*.jsonl"])
def test_what_is_no_path(to: Any) -> None:
    with pytest.raises(
        TypeError, match=r"takes the path of the shards, and got .* Write it as text"
    ):
        MapDataset.range(3).write(to)


def test_names_that_are_no_list(tmp_path: Path) -> None:
    """Text would be taken for its letters."""
    ds = MapDataset.range(3).map(lambda x: {"text": x})
    for given, instead in (("text", r"\['text'\]"), (None, r"\['text'\]")):
        with pytest.raises(TypeError, match=f"is a list of names, .*`json_fields={instead}`"):
            ds.write(tmp_path / "a-*.jsonl", json_fields=given)  # type: ignore[arg-type]


def test_a_manifest_that_is_no_json_is_not_written_over(tmp_path: Path) -> None:
    for text in ("", "[" * 100_000):
        (tmp_path / "a.manifest.json").write_text(text)
        with pytest.raises(FileError, match="is there already and cannot be read"):
            dataset().write(tmp_path / "a-*.jsonl", workers=0)
        assert (tmp_path / "a.manifest.json").read_text() == text


@pytest.mark.parametrize("what", ["missing", "cut", "no manifest"])
def test_a_finished_dataset_that_is_damaged(tmp_path: Path, what: str) -> None:
    """To write it again does not mend it by itself, and says what does."""
    to, shard = tmp_path / "a-*.jsonl", tmp_path / "a-00000-of-00002.jsonl"
    dataset().write(to, shards=2, workers=0)
    if what == "missing":
        shard.unlink()
    elif what == "cut":
        os.truncate(shard, 10)
    else:
        (tmp_path / "a.manifest.json").write_text("{}")
    with pytest.raises(FileError) as raised:
        dataset().write(to, shards=2, workers=0)
    assert any("`overwrite=True`" in note for note in raised.value.__notes__)
    assert dataset().write(to, shards=2, workers=0, overwrite=True).records == RECORDS
    assert len(bushel.open(tmp_path, verify=True)) == RECORDS


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written to: Not a directory"):
        MapDataset.range(3).write(tmp_path / "file" / "a-*.jsonl")
    for in_the_way in (".b.bushel", "c.origins"):
        (tmp_path / in_the_way).write_text("")
        words = rf"cannot be written.*: File exists \('.*/{in_the_way}' is no folder\)"
        with pytest.raises(FileError, match=words):
            ds = MapDataset.range(3)
            ds.write(f"{tmp_path}/{in_the_way.strip('.')[0]}-*.jsonl", workers=0)
    if os.geteuid():  # Nothing is read-only for root.
        tmp_path.chmod(0o500)
        with pytest.raises(FileError, match="cannot be written to: Permission denied"):
            MapDataset.range(3).write(tmp_path / "a-*.jsonl")


@pytest.mark.parametrize("format", ["jsonl", "parquet", "tar"])
def test_a_disk_that_is_full(tmp_path: Path, format: str) -> None:
    """One error that says which file; the shards before it are kept, and nothing half."""
    program = f"""
import resource, signal
import numpy as np
from bushel import MapDataset
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
noise = lambda n: np.random.default_rng(n).bytes(200 if n < 50 else 4000)
MapDataset.range(100).map(lambda n: {{"x": noise(n)}}).write(
    {str(tmp_path / f"a-*.{format}")!r}, shards=2, workers=0)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert "a-00001-of-00002" in run.stderr and "cannot be written: " in run.stderr
    assert [path.name for path in tmp_path.glob("a-*")] == [f"a-00000-of-00002.{format}"]
    assert not list((tmp_path / ".a.bushel").glob("tmp*"))


def test_an_array_record_on_a_disk_that_is_full(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no disk that is always full")
    with pytest.raises(OSError, match="No space left") as raised:
        write_array_record("/dev/full", [b"x" * 1000] * 1000)
    assert raised.value.errno == errno.ENOSPC


def raises_a_runtime_error(number: int) -> bytes:
    if number == 57:
        raise RuntimeError("of the user's")
    return bytes(number)


@pytest.mark.parametrize("format", ["arrayrecord", "tfrecord"])
def test_any_exception_of_a_function_is_raised_as_it_is(tmp_path: Path, format: str) -> None:
    ds = MapDataset.range(100).map(raises_a_runtime_error)
    with pytest.raises(RuntimeError, match="of the user's"):
        ds.write(tmp_path / f"a-*.{format}", shards=2, workers=0)


@pytest.mark.parametrize("origins", [True, False])
def test_a_disk_that_refuses_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origins: bool
) -> None:
    """What it took at first is not believed, and made again when it is well."""

    def refuses(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    to = tmp_path / "a-*.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuses)
        name = "a.origins/00000" if origins else "a-00000-of-00002.jsonl"
        place = str(tmp_path / "a.origins" if origins else tmp_path)
        words = f"{name}' cannot be written: the disk of {place!r} is full: make room on it."
        with pytest.raises(FileError, match=re.escape(words)):
            dataset().write(to, shards=2, workers=0, origins=origins)
    assert not list(tmp_path.glob("a*.jsonl")) and not list(tmp_path.glob("*.json"))
    assert dataset().write(to, shards=2, workers=0, origins=origins).records == RECORDS
    assert len(bushel.open(tmp_path, verify=True)) == RECORDS
