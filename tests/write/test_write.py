"""Written datasets: by any number of workers, and read again."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset
from bushel.cli.main import main
from bushel.errors import FileError, MissingFileError, PlanError
from bushel.write.shard_counts import ShardCounts, shared_counts
from tests.write import parts

RECORDS = 300


def dataset() -> MapDataset[Any]:
    return MapDataset.range(RECORDS).seed(3).shuffle().map(parts.record)


def contents(folder: Path) -> dict[str, str]:
    """The digests of all files below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "bushel-index" not in path.name
    }


def elements(source: Any) -> list[Any]:
    return [source[key] for key in range(len(source))]


# Whoever writes, the bytes are the same.


@pytest.mark.parametrize("format", ["parquet", "arrayrecord", "tar"])
def test_any_number_of_workers(tmp_path: Path, format: str) -> None:
    for workers in (0, 1, 3):
        dataset().filter(parts.odd).write(
            tmp_path / str(workers) / f"a-*.{format}", shards=4, workers=workers
        )
    assert contents(tmp_path / "0") == contents(tmp_path / "1") == contents(tmp_path / "3")


def test_one_file_by_several_workers(tmp_path: Path) -> None:
    """Workers make its elements, and one process writes them."""
    for workers in (0, 2):
        dataset().write(tmp_path / str(workers) / "a.arrow", workers=workers)
    assert contents(tmp_path / "0") == contents(tmp_path / "2")


def test_shards_are_ranges_of_positions(tmp_path: Path) -> None:
    """With a filter, too: they do not depend on what others keep."""
    written = dataset().filter(parts.odd).write(tmp_path / "a-*.jsonl", shards=3, workers=0)
    assert [shard.positions for shard in written.shards] == [(0, 100), (100, 200), (200, 300)]
    expected = [element["id"] for element in dataset().filter(parts.odd)]
    assert [element["id"] for element in elements(bushel.open(tmp_path))] == expected
    again = dataset().write(tmp_path / "b-*.jsonl", shard_records=128, workers=0)
    assert [shard.records for shard in again.shards] == [128, 128, 44]


def test_a_worker_that_dies(tmp_path: Path) -> None:
    dataset().write(tmp_path / "a" / "a-*.arrow", shards=4, workers=0)
    dies = MapDataset.range(RECORDS).seed(3).shuffle().map(parts.DiesOnce(str(tmp_path / "died")))
    dies.write(tmp_path / "b" / "a-*.arrow", shards=4, workers=2)
    assert (tmp_path / "died").exists()
    ours, theirs = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert {name: ours[name] for name in ours if "manifest" not in name} == {
        name: theirs[name] for name in theirs if "manifest" not in name
    }


# Streams, in order.


def test_streams(tmp_path: Path) -> None:
    stream = dataset().to_iter_dataset().filter(parts.odd).map(lambda element: element["tokens"])
    expected = list(stream)
    for workers in (0, 2):
        written = stream.write(
            tmp_path / str(workers) / "t-*.bin", shard_records=50, workers=workers
        )
        assert [shard.records for shard in written.shards] == [50, 50, 50]
        found = elements(bushel.open(tmp_path / str(workers)))
        assert len(found) == len(expected)
        assert all(map(np.array_equal, found, expected))
    assert contents(tmp_path / "0") == contents(tmp_path / "2")
    assert written.no_origins is not None and "filter(odd)" in written.no_origins


def test_a_stream_that_is_stopped(tmp_path: Path) -> None:
    """It goes on after the last shard that was whole: elements before are not made again."""
    made: list[int] = []
    stop = tmp_path / "stop"
    stop.touch()

    def note(number: int) -> dict[str, int]:
        made.append(number)
        if number == 200 and stop.exists():
            raise RuntimeError("stopped")
        return {"n": number}

    stream = MapDataset.range(RECORDS).to_iter_dataset(bushel.ReadOptions(0, 0)).map(note)
    with pytest.raises(RuntimeError, match="stopped"):
        stream.write(tmp_path / "a-*.jsonl", shard_records=64, workers=0)
    assert len(list(tmp_path.glob("a-*.jsonl"))) == 3
    stop.unlink()
    made.clear()
    written = stream.write(tmp_path / "a-*.jsonl", shard_records=64, workers=0)
    assert [shard.records for shard in written.shards] == [64, 64, 64, 64, 44]
    assert min(made) == 3 * 64
    assert [element["n"] for element in elements(bushel.open(tmp_path))] == list(range(RECORDS))


# Read again.


def test_where_records_came_from(tmp_path: Path) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(f"{number}\n" for number in range(100)))
    ds = MapDataset.source(bushel.open(lines)).shuffle(seed=2).filter(lambda n: n % 3 > 0)
    pairs = ds.map(lambda n: {"n": n})
    pairs.write(tmp_path / "out" / "a-*.parquet", shards=4, workers=0)
    source = bushel.open(tmp_path / "out")
    answer = bushel.where(MapDataset.source(source).shuffle(seed=5).batch(8), step=3)
    batch = MapDataset.source(source).shuffle(seed=5).batch(8)[3]
    for record, number in zip(answer, batch["n"].tolist(), strict=True):
        assert record.origins is not None
        (origin,) = record.origins
        assert (origin.file, origin.record) == (str(lines), number)
        assert record.file is not None and record.file.endswith(".parquet")
    assert f"of {lines}" in str(answer)
    json.dumps(answer.to_dict())
    whole = MapDataset.range(10).batch(4)
    whole.write(tmp_path / "batches" / "a-*.arrow", workers=0)
    origins = bushel.open(tmp_path / "batches").origins_of(2)
    assert [origin.key for origin in origins] == [8, 9]
    without = whole.write(tmp_path / "none" / "a-*.arrow", workers=0, origins=False)
    assert without.no_origins and bushel.open(tmp_path / "none").origins_of(2) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_where_records_of_streams_came_from(workers: int, tmp_path: Path) -> None:
    def numbers(first: int) -> bushel.IterDataset[Any]:
        ds = MapDataset.range(first, first + 100).seed(first).shuffle()
        return ds.map(lambda n: {"n": n}).to_iter_dataset()

    mixed = bushel.IterDataset.mix([numbers(0), numbers(1000)], [2, 1])
    shuffled = bushel.experimental.WindowShuffleIterDataset(mixed, window_size=10, seed=1)
    kept = shuffled.filter(lambda row: row["n"] % 3 > 0)
    for name, stream, origins in (("mixed", shuffled, True), ("kept", kept, "all")):
        how: dict[str, Any] = {"shard_records": 20, "workers": workers, "origins": origins}
        written = stream.write(tmp_path / name / "a-*.jsonl", **how)
        assert written.no_origins is None
        source = bushel.open(tmp_path / name)
        assert len(source) > 60
        for key, row in enumerate(source):
            (origin,) = source.origins_of(key)
            assert (origin.source, origin.key) == (row["n"] // 1000, row["n"] % 1000)
    plain = kept.write(tmp_path / "plain" / "a-*.jsonl", workers=0)
    assert plain.no_origins is not None and "origins='all'" in plain.no_origins
    assert contents_of_shards(tmp_path / "plain") == contents_of_shards(tmp_path / "kept")


def contents_of_shards(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.jsonl")))


def test_origins_of_a_stream_that_is_stopped(tmp_path: Path) -> None:
    in_the_way = tmp_path / "in the way"
    in_the_way.touch()

    def maybe(row: Any) -> bool:
        if row == 45 and in_the_way.exists():
            raise ValueError("not this one")
        return bool(row % 3 > 0)

    stream = MapDataset.range(100).to_iter_dataset().filter(maybe).map(lambda n: {"n": n})
    how: dict[str, Any] = {"shard_records": 10, "workers": 0, "origins": "all"}
    with pytest.raises(ValueError, match="not this one"):
        stream.write(tmp_path / "out" / "a-*.jsonl", **how)
    assert len(list(tmp_path.glob("out/a-*.jsonl"))) == 2
    in_the_way.unlink()
    assert stream.write(tmp_path / "out" / "a-*.jsonl", **how).no_origins is None
    source = bushel.open(tmp_path / "out")
    assert [source.origins_of(key)[0].key for key in range(len(source))] == [
        n for n in range(100) if n % 3 > 0
    ]


def test_functions_that_leave_elements_out(tmp_path: Path) -> None:
    ds = MapDataset.range(50).map(lambda n: None if n % 7 == 0 else {"n": n})
    mixed = bushel.IterDataset.mix([ds.to_iter_dataset(), ds.to_iter_dataset()], [1, 1])
    written = mixed.write(tmp_path / "a-*.jsonl", workers=0)
    assert written.no_origins is not None and bushel.open(tmp_path).origins_of(0) is None


def test_what_was_done_to_the_files(tmp_path: Path) -> None:
    dataset().write(tmp_path / "whole" / "a-*.jsonl", shards=3, workers=0)

    def copy() -> Path:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return Path(shutil.copytree(tmp_path / "whole", tmp_path / "copy"))

    folder = copy()
    (folder / "a-00001-of-00003.jsonl").unlink()
    with pytest.raises(MissingFileError, match=r"a-00001-of-00003.jsonl' is missing"):
        bushel.open(folder)
    folder = copy()
    with (folder / "a-00001-of-00003.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(FileError, match=r"a-00001-of-00003.jsonl' has changed: it had"):
        bushel.open(folder)
    folder = copy()
    (folder / "a-00007-of-00009.jsonl").write_text("")
    with pytest.raises(FileError, match=r"a-00007-of-00009.jsonl' is no part of the dataset"):
        bushel.open(folder)
    folder = copy()
    data = bytearray((folder / "a-00001-of-00003.jsonl").read_bytes())
    data[data.index(b"number")] ^= 1
    (folder / "a-00001-of-00003.jsonl").write_bytes(data)
    assert len(bushel.open(folder)) == RECORDS
    with pytest.raises(FileError, match="its bytes are not those that were written"):
        bushel.open(folder, verify=True)
    assert main(["verify", str(folder)]) == 1
    assert main(["verify", str(tmp_path / "whole")]) == 0
    (folder / "b.manifest.json").write_text("{}")
    with pytest.raises(PlanError, match="has several datasets in it"):
        bushel.open(folder)


def test_a_manifest_is_data_of_somebody(tmp_path: Path) -> None:
    """Whatever is in it, it is read or refused; and it names no file elsewhere."""
    dataset().write(tmp_path / "a-*.jsonl", shards=2, workers=0)
    path = tmp_path / "a.manifest.json"
    told = json.loads(path.read_text())
    for change in (
        {"version": 2},
        {"bushel": None},
        {"shards": 3},
        {"shards": [None]},
        {"records": 7},
        {"layout": None},
        {"format": "pickle"},
        {"digest": "x"},
        {"pipeline": [1]},
        {"shards": [{**told["shards"][0], "file": {**told["shards"][0]["file"], "name": "../x"}}]},
        {"shards": [{**told["shards"][0], "file": {**told["shards"][0]["file"], "name": "/x"}}]},
        {"shards": [{**told["shards"][0], "records": -1}]},
        {"shards": [told["shards"][0]] * 2},
    ):
        path.write_text(json.dumps({**told, **change}))
        with pytest.raises(FileError, match=r"manifest"):
            bushel.open(path)
    path.write_text("[" * 100_000)
    with pytest.raises(FileError, match="no manifest, or a damaged one"):
        bushel.open(path)


def test_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "prepare.py"
    program.write_text(
        "from bushel import MapDataset\n"
        "def make():\n    return MapDataset.range(10).map(lambda n: {'n': n})\n"
        "def bad():\n    return MapDataset.range(40).map(lambda n: {'n': 1 // (n - 27)})\n"
    )
    to = str(tmp_path / "out" / "a-*.jsonl")
    assert main(["run", f"{program}:make", "--to", to, "--shards", "2", "--workers", "0"]) == 0
    assert capsys.readouterr().out.startswith("10 records in 2 shards of")
    assert elements(bushel.open(to))[7] == {"n": 7}
    to = str(tmp_path / "bad" / "a-*.jsonl")
    assert main(["run", f"{program}:bad", "--to", to, "--shards", "2", "--workers", "0"]) == 1
    told = capsys.readouterr().err
    assert "ZeroDivisionError" in told and "in shard 1 of 2, element 27" in told
    assert main(["head", str(tmp_path / "out"), "-n", "1"]) == 0
    assert main(["run", f"{program}:missing", "--to", to]) == 1


def test_a_command_without_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    """The words are those of any command: this one has no `--pipeline`."""
    for named, words in (
        ("train.py", "a pipeline is named as FILE.py:NAME, such as train.py:make, and got 'train"),
        ("/none.py:make", "'/none.py:make' names the file '/none.py', and there is none"),
        (f"{parts.__file__}:none", "has no 'none': a pipeline is named as FILE.py:NAME"),
    ):
        assert main(["run", named, "--to", "a-*.jsonl"]) == 1
        assert words in capsys.readouterr().err


def test_many_datasets_in_a_folder(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.manifest.json").touch()
    with pytest.raises(
        PlanError, match=r"several datasets in it: '0.*, '4\.[^,]* and 3 more\. Name"
    ):
        bushel.open(tmp_path)


def test_counts_leave_nothing_and_touch_nothing(tmp_path: Path) -> None:
    """Processes of this machine see them; a path that leads to another file is not written to."""
    before = set(os.listdir(tempfile.gettempdir()))
    with shared_counts(3) as counts:
        program = "import pickle, sys; pickle.load(sys.stdin.buffer).set(1, 7)"
        subprocess.run([sys.executable, "-c", program], input=pickle.dumps(counts), check=True)
        assert counts.total() == 7
        left = set(os.listdir(tempfile.gettempdir())) - before
        assert not [name for name in left if name.startswith("bushel-counts")]
    other = tmp_path / "other"
    other.write_bytes(b"data of somebody else, longer than the counts")
    elsewhere = ShardCounts(str(other), "bushel-counts-1", 3)
    elsewhere.set(0, 5)
    assert elsewhere.total() == 5 and other.read_bytes().startswith(b"data of")


def test_silent_where_nobody_watches(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dataset().write(tmp_path / "a-*.jsonl", shards=2, workers=2)
    assert capfd.readouterr() == ("", "")


def test_in_workers_and_states(tmp_path: Path) -> None:
    """A written dataset is a source like any other."""
    dataset().write(tmp_path / "a-*.arrayrecord", shards=3, workers=0)
    ds = MapDataset.source(bushel.open(tmp_path)).shuffle(seed=1).map(lambda x: x["id"]).batch(32)
    options = bushel.MultiprocessingOptions(2)
    with ds.to_iter_dataset().mp_prefetch(options).__iter__() as iterator:
        found = [batch.tolist() for batch in iterator]
    assert found == [batch.tolist() for batch in ds]
    iterator = iter(ds)
    next(iterator)
    state, rest = iterator.get_state(), [batch.tolist() for batch in iterator]
    same = MapDataset.source(bushel.open(tmp_path)).shuffle(seed=1).map(lambda x: x["id"])
    again = iter(same.batch(32))
    again.set_state(state)
    assert [batch.tolist() for batch in again] == rest
