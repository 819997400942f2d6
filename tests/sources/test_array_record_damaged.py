"""ArrayRecord files: what goes wrong, and what is said of it."""

import itertools
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import bushel
from bushel.errors import FileError, MissingFileError, PlanError
from bushel.sources import array_record
from bushel.sources.array_record import ArrayRecordDataSource
from tests.grain.oracle import Raised, assert_same, difference, outcome
from tests.sources.test_array_record import (
    WAYS,
    A,
    B,
    GrainSource,
    Instruction,
    folder,
    in_folder,
    in_threads,
    lines,
    run,
    write,
)

__all__ = ["folder", "in_folder"]


def damaged(path: str, record: bytes) -> str:
    """Turns a byte of a record over."""
    data = bytearray(Path(path).read_bytes())
    data[data.index(record) + len(record) // 2] ^= 0xFF
    Path(path).write_bytes(data)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> tuple[str, list[bytes]]:
    """A file in which record 40 of 60 is damaged, and the records."""
    records = [np.random.default_rng(number).bytes(50) for number in range(60)]
    return damaged(write(tmp_path / "bad", records), records[40]), records


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_record_is_named_and_the_others_are_read(
    bad: tuple[str, list[bytes]], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in WAYS[way].items():
        monkeypatch.setattr(array_record, name, value)
    path, records = bad
    source = ArrayRecordDataSource(path)
    good = [key for key in range(60) if key != 40]
    theirs = outcome(lambda: GrainSource(path)[40])
    for read in (lambda: source[40], lambda: source.__getitems__(range(60))):
        with pytest.raises(FileError, match=r"record 40 of '.*bad' cannot be read: .*mism") as info:
            read()
        assert difference(theirs, Raised(info.value)) is None
        assert isinstance(info.value, OSError)
        assert source.__getitems__(good) == [records[key] for key in good]
        assert [source[key] for key in good] == [records[key] for key in good]


@pytest.mark.parametrize("threads", [0, 4])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_goes_on_behind_a_damaged_record(
    bad: tuple[str, list[bytes]], threads: int, workers: int
) -> None:
    path, records = bad
    ds = bushel.MapDataset.source(ArrayRecordDataSource(path)).map(bytes.hex)
    stream = ds.to_iter_dataset(bushel.ReadOptions(num_threads=threads))
    if workers:
        stream = stream.mp_prefetch(bushel.MultiprocessingOptions(num_workers=workers))
    with iter(stream) as iterator:
        assert [next(iterator) for _ in range(40)] == [record.hex() for record in records[:40]]
        with pytest.raises(FileError, match=r"record 40 of .* cannot be read") as info:
            next(iterator)
        assert "the source ArrayRecordDataSource failed on key 40" in "".join(info.value.__notes__)
        assert list(iterator) == [record.hex() for record in records[41:]]


def test_a_damaged_record_does_not_disturb_other_threads(bad: tuple[str, list[bytes]]) -> None:
    path, records = bad
    source = ArrayRecordDataSource(path)

    def read(number: int) -> None:
        for _ in range(30):
            if number % 2:
                with pytest.raises(FileError, match="record 40"):
                    source[40]
            else:
                assert source.__getitems__([1, 59, 3, 20]) == [records[k] for k in (1, 59, 3, 20)]

    in_threads(6, read)


def _cut(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "half", data[: len(data) // 2]
    yield "without the end", data[:-10]
    yield "of another kind", b"some text\n" * 20_000
    yield "with a damaged end", data[: -(1 << 16)] + bytes(20) + data[20 - (1 << 16) :]


@pytest.mark.parametrize("number", range(5))
def test_a_file_that_is_not_whole(tmp_path: Path, number: int) -> None:
    path = Path(write(tmp_path / "cut", lines("x", 400)))
    name, data = next(itertools.islice(_cut(path.read_bytes()), number, None))
    path.write_bytes(data)
    theirs = outcome(lambda: GrainSource(str(path)))
    ours = outcome(lambda: ArrayRecordDataSource(path))
    assert isinstance(theirs, Raised), name
    assert_same(theirs, ours, name)
    assert re.search(r"'.*cut' is no ArrayRecord file, or .*one(: \w.*)?\. If", str(ours.error))
    # Nothing is looked at before it is read.
    later = ArrayRecordDataSource(Instruction(path, 0, 9, 400))
    with pytest.raises(FileError, match="is no ArrayRecord file"):
        later.__getitems__([3, 4])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    for make in (
        lambda: ArrayRecordDataSource(missing),
        lambda: ArrayRecordDataSource(f"{missing}[0:4]")[0],
        lambda: ArrayRecordDataSource(Instruction(missing, 0, 4, 4))[0],
    ):
        with pytest.raises(MissingFileError, match=r"there is no file '.*missing'") as info:
            make()
        assert isinstance(info.value, FileNotFoundError)
        assert isinstance(info.value, RuntimeError)  # As in Grain.
    with pytest.raises(FileError, match=r"cannot be read: Is a directory\."):
        ArrayRecordDataSource(Instruction(tmp_path, 0, 4, 4))[0]


def test_a_file_that_was_replaced(tmp_path: Path) -> None:
    """Whoever has it open keeps it; whoever opens it anew notices."""
    path = write(tmp_path / "a", lines("a", 7))
    source = ArrayRecordDataSource(path)
    before, after = lines("a", 7), lines("b", 9)
    assert source[3] == before[3]
    # They have one size, as all small ones, and may be of the same tick of the clock.
    os.utime(write(tmp_path / "b", after), ns=(1, 1))
    (tmp_path / "b").replace(path)
    assert source[4] == before[4]
    sent = pickle.dumps(source)
    with source:
        pass  # Closes it.
    for other in (source, pickle.loads(sent)):
        with pytest.raises(FileError, match=r"a' is another file than the one that this source"):
            other[4]
    assert ArrayRecordDataSource(path)[4] == after[4]


def test_a_part_that_the_file_does_not_have(tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines("a", 7))
    source = ArrayRecordDataSource(Instruction(path, 5, 4, 9))
    assert source.__getitems__([1, 0]) == lines("a", 7)[:-3:-1]
    with pytest.raises(FileError, match=r"there is no record 7 in '.*a', which has 7\."):
        source.__getitems__([0, 1, 2])
    with pytest.raises(PlanError, match="cannot be negative: Instruction"):
        ArrayRecordDataSource(Instruction(path, 0, -1, 7))


_NOT_ALLOWED = """
import os, sys
from bushel.errors import FileError
from bushel.sources.array_record import ArrayRecordDataSource, _package

_package()
if not os.getuid():  # To whom everything is allowed.
    os.setgid(65534)
    os.setuid(65534)
try:
    ArrayRecordDataSource(sys.argv[1])
except FileError as error:
    print(error)
"""


def test_a_file_that_one_may_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [b"x"])
    os.chmod(path, 0)
    assert run(_NOT_ALLOWED, path) == f"{path!r} cannot be read: Permission denied.\n"


@pytest.mark.usefixtures("in_folder")
def test_options_of_the_reader() -> None:
    offloaded = {"index_storage_option": "offloaded", "footer_prefetch_bytes": "0"}
    for options in ({"readahead_buffer_size": "1M", "max_parallelism": "2"}, offloaded, {}):
        assert list(ArrayRecordDataSource([A, B], options)) == lines("a", 7) + lines("b", 30)
    with pytest.raises(PlanError, match=r"reader_options '.*,speed:9' are refused: Unknown option"):
        ArrayRecordDataSource(A, {"speed": "9"})
    with pytest.raises(TypeError, match=r"reader_options are a dict, as .*and got str: 'speed:9'"):
        ArrayRecordDataSource(A, "speed:9")  # type: ignore[arg-type]


def test_errors_travel() -> None:
    for kind in (FileError, MissingFileError):
        error = pickle.loads(pickle.dumps(kind("what is wrong")))
        assert (type(error), str(error)) == (kind, "what is wrong")


_WITHOUT_PACKAGE = """
import sys
sys.modules["array_record"] = None
from bushel.sources.array_record import ArrayRecordDataSource
try:
    ArrayRecordDataSource(["a"])
except ImportError as error:
    print(error)
"""


def test_without_the_package() -> None:
    assert run(_WITHOUT_PACKAGE) == (
        "`ArrayRecordDataSource` needs the package array_record. "
        'Install it with: pip install "bushel[arrayrecord]"\n'
    )
