"""ArrayRecord files: what Grain reads from them, many at a time, and what goes wrong."""

import copy
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel.errors import BushelError, MissingFileError, PlanError
from bushel.sources import array_record
from bushel.sources.array_record import ArrayRecordDataSource
from tests.grain.oracle import Raised, assert_same, outcome
from tests.patience import PATIENCE_SECONDS
from tests.property.profile import tried
from tests.sources.parsing import BushelParse, parse

GrainSource = grain.sources.ArrayRecordDataSource


def write(path: Path, records: Sequence[bytes], options: str = "group_size:1") -> str:
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return str(path)


def lines(name: str, count: int) -> list[bytes]:
    """Records that say whose they are, of many lengths, the first one empty."""
    return [f"{name}{number} ".encode() * number for number in range(count)]


@dataclass(frozen=True)
class Instruction:
    """What TFDS says of a file."""

    filename: str | Path
    skip: int
    take: int
    examples_in_shard: int


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files: of single records, of groups of four, and an empty one."""
    folder = tmp_path_factory.mktemp("records")
    write(folder / "a.array_record", lines("a", 7))
    write(folder / "b.array_record", lines("b", 30), "group_size:4")
    write(folder / "c.array_record", [])
    (folder / "notes.txt").write_text("not records")
    return folder


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def run(program: str, *arguments: str) -> str:
    """Runs a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What Grain has, and what it says.

A, B, C = (f"{name}.array_record" for name in "abc")
PATHS: dict[str, Any] = {
    "a file": A,
    "a pathlib.Path": Path(A),
    "a list": [A, B],
    "a tuple": (B,),
    "an empty file among others": [C, A, C, B],
    "an empty file": C,
    "a file twice": [A, B, A],
    "a part": f"{B}[3:20]",
    "parts": [f"{B}[3:20]", A, f"{B}[0:3]"],
    "an empty part": [f"{B}[5:5]", A],
    "a part beyond the end": f"{A}[5:9]",
    "an instruction": Instruction(B, 10, 5, 30),
    "instructions": [Instruction(A, 2, 3, 7), Instruction(B, 0, 30, 30)],
    "an instruction beyond the end": [Instruction(A, 4, 9, 7)],
    "no file": "missing.array_record",
    "no file of several": [A, "missing.array_record"],
    "no name": "",
    "a file of another kind": "notes.txt",
    "no paths": [],
    "None": None,
    "a number": 3,
    "bytes": b"a.array_record",
    "a number among paths": [A, 3],
    "a list in a list": [[A]],
    "a set": {A},
    "an iterator": iter([A]),
}


def look(make: Callable[[], Any]) -> Any:
    """Everything that a source shows: records by key, in one call, and beyond the ends."""
    source = outcome(make)
    if isinstance(source, Raised):
        return source
    keys = [*range(len(source)), -1, len(source), np.int64(0), True, 2**70]
    return {
        "paths": source.paths,
        "repr": repr(source),
        "records": [outcome(partial(source.__getitem__, key)) for key in keys],
        "iterated": outcome(lambda: list(source)),
        "too many": outcome(lambda: source.__getitems__([0, len(source)])),
    }


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("name", PATHS)
def test_what_grain_reads(name: str) -> None:
    paths = PATHS[name]
    theirs = look(lambda: GrainSource(paths))
    ours = look(lambda: ArrayRecordDataSource(paths))
    assert_same(theirs, ours)
    if isinstance(ours, Raised):
        assert isinstance(ours.error, BushelError)


@pytest.mark.usefixtures("in_folder")
def test_many_in_one_call_as_in_grain() -> None:
    paths = [f"{B}[3:20]", A, C, f"{B}[0:9]"]
    theirs, ours = GrainSource(paths), ArrayRecordDataSource(paths)
    keys = np.random.default_rng(0).integers(0, len(ours), 200).tolist()
    assert_same(theirs.__getitems__(keys), ours.__getitems__(keys))
    assert ours.__getitems__([]) == []  # Where Grain has an error about workers.


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("key", ["1", 1.0, None, slice(0, 2)])
def test_keys_are_numbers(key: Any) -> None:
    source = ArrayRecordDataSource(A)
    for read in (lambda: source[key], lambda: source.__getitems__([0, key])):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            read()


@pytest.mark.usefixtures("in_folder")
def test_a_key_that_is_not_there_is_named() -> None:
    source = ArrayRecordDataSource([A, B])
    with pytest.raises(ValueError, match=r"\(2 files, 37 records\) has no record 37; keys count"):
        source[37]
    with pytest.raises(ValueError, match="has no record -2"):
        source.__getitems__([5, -2, -1])


# Many in one call.

KEYS = st.one_of(
    st.lists(st.integers(0, 73), max_size=80),
    st.tuples(st.integers(0, 73), st.integers(0, 73)).map(lambda ends: list(range(*ends))),
    st.permutations(range(74)),
)
# By runs, by lists, by runs that are found to be slow, and as it comes.
WAYS: dict[str, dict[str, float]] = {
    "runs": {"_SECONDS_A_LIST": 1e9},
    "lists": {"_SECONDS_A_LIST": 0.0, "_SECONDS_A_GROUP": 0.0},
    "slow runs": {"_SECONDS_A_LIST": 0.0, "_SECONDS_A_SLOW_RUN": 0.0, "_SECONDS_A_RUN": 0.0},
    "free": {},
}


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("paths", [[B, A, B, A], [f"{B}[4:30]", C, A, A, A, A, B]])
def test_any_keys_in_any_order(way: str, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(array_record, name, value)
    source = ArrayRecordDataSource(paths)
    records = [source[key] for key in range(len(source))]
    assert len(records) >= 74

    @tried
    @given(KEYS)
    def check(keys: list[int]) -> None:
        assert source.__getitems__(keys) == [records[key] for key in keys]
        array: Any = np.array(keys, np.uint8)
        assert source.__getitems__(array) == [records[key] for key in keys]

    check()


@pytest.mark.parametrize("way", WAYS)
def test_one_file_of_many_records(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(array_record, name, value)
    records = [f"record {number}".encode() for number in range(3000)]
    source = ArrayRecordDataSource(write(tmp_path / "a", records))
    order = np.random.default_rng(0).permutation(3000).tolist()
    for keys in (order, sorted(order[:1500]), range(3000), [7, 8, 9, 3, 3, 2999], [5]):
        assert source.__getitems__(keys) == [records[key] for key in keys]


def test_zeros_at_the_end_of_a_record_stay(tmp_path: Path) -> None:
    records = [bytes(number) for number in range(5)]
    paths = [write(tmp_path / name, records) for name in "ab"]
    assert ArrayRecordDataSource(paths).__getitems__(range(10)) == 2 * records


# Through pipelines, as in Grain.


def dataset(lib: Any, source: Any) -> Any:
    return lib.MapDataset.source(source).shuffle(seed=3).map(parse).batch(8)


class GrainParse(grain.transforms.Map):  # type: ignore[misc]
    def map(self, element: bytes) -> Any:
        return parse(element)


def loader(lib: Any, source: Any, worker_count: int = 0) -> Any:
    operation = GrainParse() if lib is grain else BushelParse()
    return lib.DataLoader(
        data_source=source,
        sampler=lib.samplers.IndexSampler(
            num_records=len(source),
            shard_options=lib.sharding.NoSharding(),
            shuffle=True,
            num_epochs=2,
            seed=5,
        ),
        operations=[operation, lib.transforms.Batch(8)],
        worker_count=worker_count,
    )


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two files with the numbers up to 60, as bytes."""
    folder = tmp_path_factory.mktemp("numbers")
    records = [np.arange(number, number + 4, dtype=np.int64).tobytes() for number in range(60)]
    return [write(folder / "a", records[:25]), write(folder / "b", records[25:])]


@pytest.mark.parametrize("worker_count", [0, 2])
def test_datasets_and_loaders(numbers: list[str], worker_count: int) -> None:
    theirs, ours = GrainSource(numbers), ArrayRecordDataSource(numbers)
    stream = dataset(bushel, ours).to_iter_dataset()
    if worker_count:
        stream = stream.mp_prefetch(bushel.MultiprocessingOptions(num_workers=worker_count))
    assert_same(list(dataset(grain, theirs)), list(stream))
    assert_same(list(loader(grain, theirs)), list(loader(bushel, ours, worker_count)))


def test_a_state_that_grain_saved_goes_on_here(numbers: list[str]) -> None:
    theirs = iter(loader(grain, GrainSource(numbers)))
    for _ in range(5):
        next(theirs)
    ours = iter(loader(bushel, ArrayRecordDataSource([Path(path) for path in numbers])))
    ours.set_state(theirs.get_state())
    assert_same(list(theirs), list(ours))


def test_a_state_of_other_files_is_refused(numbers: list[str]) -> None:
    state = iter(loader(bushel, ArrayRecordDataSource(numbers))).get_state()
    others = iter(loader(bushel, ArrayRecordDataSource(numbers[::-1])))
    with pytest.raises(ValueError, match="hash_of_paths"):
        others.set_state(state)


def test_blocks_are_read_in_one_call(numbers: list[str]) -> None:
    calls = []

    class Counting(ArrayRecordDataSource):
        def __getitem__(self, record_key: Any) -> bytes:
            raise AssertionError("asked one by one")

        def __getitems__(self, record_keys: Any) -> list[bytes]:
            calls.append(len(record_keys))
            return super().__getitems__(record_keys)

    assert dataset(bushel, Counting(numbers))[0].shape == (8, 32)
    assert calls == [8]


# Folders and globs, which Grain leaves to its users.


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("path", [".", "./", Path("."), "*.array_record", "./[ab]*", "**/?.arr*"])
def test_folders_and_globs(path: Any) -> None:
    source = ArrayRecordDataSource(path)
    with_c = "[ab]" not in str(path)
    assert [Path(file).name for file in source.paths] == ([A, B, C] if with_c else [A, B])
    assert str(source) == f"ArrayRecordDataSource({3 if with_c else 2} files, 37 records)"
    assert_same(list(GrainSource(source.paths)), list(source))
    assert repr(source) == repr(GrainSource(source.paths))


def test_a_name_that_looks_like_a_glob(tmp_path: Path) -> None:
    path = write(tmp_path / "a[1]*", [b"x"])
    write(tmp_path / "a1", [b"y"])
    assert list(ArrayRecordDataSource(path)) == [b"x"]


def test_a_source_in_words(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [b"x"])
    assert str(ArrayRecordDataSource(path)) == "ArrayRecordDataSource(1 file, 1 record)"
    assert str(ArrayRecordDataSource([path] * 1200)).endswith("(1 file, 1,200 records)")


def test_folders_and_globs_without_records(tmp_path: Path) -> None:
    (tmp_path / "read.me").write_text("")
    with pytest.raises(MissingFileError, match=r"no file matches '.*/x\*'"):
        ArrayRecordDataSource([str(tmp_path / "x*")])
    with pytest.raises(MissingFileError, match=r"no file with `array_record` .* only read.me\. Na"):
        ArrayRecordDataSource(tmp_path)
    (tmp_path / "read.me").unlink()
    with pytest.raises(FileNotFoundError, match="only nothing"):
        ArrayRecordDataSource(tmp_path)


def test_a_folder_with_two_sets(tmp_path: Path) -> None:
    for name in ("train", "test"):
        for shard in range(2):
            write(tmp_path / f"x-{name}.array_record-{shard:05}-of-00002", [name.encode()])
    with pytest.raises(PlanError, match=r"2 sets: x-test.array_record, x-train.array_record\. Nam"):
        ArrayRecordDataSource(tmp_path)
    assert list(ArrayRecordDataSource(f"{tmp_path}/x-train*")) == [b"train"] * 2


# Copies, processes, threads.


def descriptors(path: str) -> int:
    """How often a file is open in this process."""
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and os.path.samefile(link, path) for link in links)


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux only")


@needs_proc
def test_files_are_open_while_they_are_used(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [b"x", b"y"])
    source = ArrayRecordDataSource(path)
    assert descriptors(path) == 0
    with source as entered:
        assert entered is source
        assert (source[1], source[0]) == (b"y", b"x")
        assert descriptors(path) == 1
        copied = copy.copy(source)
        assert (copied[1], descriptors(path)) == (b"y", 2)
        del copied
    assert descriptors(path) == 0
    assert source[1] == b"y"
    del source, entered
    assert descriptors(path) == 0


@pytest.mark.usefixtures("in_folder")
@pytest.mark.parametrize("used", [False, True])
def test_copies(used: bool) -> None:
    source = ArrayRecordDataSource([f"{B}[3:20]", A], {"max_parallelism": "1"})
    records = [source[key] for key in range(len(source))] if used else list(copy.copy(source))
    copies: list[Any] = [copy.copy(source), copy.deepcopy(source)]
    copies += [pickle.loads(pickle.dumps(source, protocol)) for protocol in (2, 4, 5)]
    for copied in copies:
        assert repr(copied) == repr(source)
        assert list(copied) == records


_FORKS = """
import os, signal, sys
from bushel.sources.array_record import ArrayRecordDataSource

path = sys.argv[1]
source = ArrayRecordDataSource(path)

def opened():
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.path.samefile(link, path) for link in links)

for _ in range(20):
    records = source.__getitems__(range(len(source)))
    # As if a thread of this process were just looking for a file.
    with source._files._lock:
        child = os.fork()
    if not child:
        signal.alarm(120)
        assert opened() == 1  # The parent's.
        for keys in ([3], range(len(source)), [7, 8, 2, 900] * 500):
            assert source.__getitems__(keys) == [records[key] for key in keys]
            assert opened() == 2
        assert list(ArrayRecordDataSource(path)) == records
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@needs_proc
def test_a_forked_process_opens_files_of_its_own(tmp_path: Path) -> None:
    # Without compression: to decompress, the package has a thread that a fork leaves behind.
    records = [f"record {number}".encode() for number in range(1000)]
    run(_FORKS, write(tmp_path / "a", records, "group_size:1,uncompressed"))


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Lets threads do the work side by side; the first error is raised."""
    errors: list[BaseException] = []
    together = threading.Barrier(count)

    def guarded(number: int) -> None:
        try:
            together.wait(PATIENCE_SECONDS)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_many_threads(tmp_path: Path) -> None:
    records = [f"record {number}".encode() for number in range(2000)]
    paths = [
        write(tmp_path / "a", records[:900]),
        write(tmp_path / "b", records[900:], "group_size:10"),
    ]
    source = ArrayRecordDataSource(paths)

    def read(number: int) -> None:
        rng = np.random.default_rng(number)
        for size in (1, 5, 300, 2000):
            keys = rng.integers(0, 2000, size).tolist()
            assert source.__getitems__(keys) == [records[key] for key in keys]
            assert source[keys[0]] == records[keys[0]]

    in_threads(8, read)


_FEW_DESCRIPTORS = """
import resource, sys
from bushel.sources.array_record import ArrayRecordDataSource

limit = 64
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
source = ArrayRecordDataSource(sys.argv[1])
assert len(source.paths) == 100
keys = [7 * number % len(source) for number in range(len(source))]
assert source.__getitems__(keys) == [b"%d" % key for key in keys]
assert [source[key] for key in keys] == [b"%d" % key for key in keys]
"""


def test_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    for file in range(100):
        records = [b"%d" % (3 * file + number) for number in range(3)]
        write(tmp_path / f"{file:03}.array_record", records)
    run(_FEW_DESCRIPTORS, str(tmp_path))
