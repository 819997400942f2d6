"""Written datasets: by any number of workers, refused where they do not fit, and read again."""

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
from bushel.errors import BadRecordsError, FileError, MissingFileError, PlanError
from bushel.write.shard_counts import ShardCounts, shared_counts
from tests.patience import PATIENCE_SECONDS
from tests.write import parts

RECORDS = 300


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path / "cache"))


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


# What is refused.


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
        ("a.jsonl", {"shards": 2}, "is one file, and several shards need a star"),
        ("", {}, "is a folder: add `format=`"),
        ("a\0-*.jsonl", {}, "has a null byte in it"),
    ],
)
def test_paths_that_cannot_be(tmp_path: Path, to: str, options: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        MapDataset.range(3).write(f"{tmp_path}/{to}", **options)


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


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written to: Not a directory"):
        MapDataset.range(3).write(tmp_path / "file" / "a-*.jsonl")
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
