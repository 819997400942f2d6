"""Indexes: kept, made again when they are not of the file, and never believed blindly."""

import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bushel.errors import FileError
from bushel.files.container import PieceWriter
from bushel.files.index import Columns, index_of
from bushel.files.local import ByteFile, LocalFile
from bushel.files.progress_line import ProgressLine
from bushel.sources import TextLinesDataSource
from tests.files.forks import true_in_a_fork
from tests.patience import PATIENCE_SECONDS

NAMES = ("starts", "stops")


class Lines:
    """Finds lines, and counts how often it had to."""

    def __init__(self) -> None:
        self.scans = 0

    def __call__(self, file: ByteFile, progress: ProgressLine) -> Columns:
        self.scans += 1
        ends = np.flatnonzero(np.frombuffer(file.read(0, file.size), dtype=np.uint8) == 10) + 1
        progress.to(file.size)
        return {"starts": np.concatenate([[0], ends[:-1]]).astype(np.int64), "stops": ends}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "a.txt"
    path.parent.mkdir()
    path.write_text("one\ntwo\nthree\n")
    return path


def index(path: Path, scan: Lines, kind: str = "lines") -> list[list[int]]:
    columns = index_of(LocalFile(str(path)), kind, NAMES, scan)
    return [columns[name].tolist() for name in NAMES]


EXPECTED = [[0, 4, 8], [4, 8, 14]]


def beside(path: Path) -> Path:
    return path.parent / f".{path.name}.lines.bushel-index"


def test_it_is_made_once_and_lies_beside_the_file(path: Path) -> None:
    scan = Lines()
    assert index(path, scan) == index(path, scan) == EXPECTED
    assert scan.scans == 1
    assert sorted(os.listdir(path.parent)) == [beside(path).name, path.name]


def test_it_is_made_again_when_the_file_is_another(path: Path) -> None:
    scan = Lines()
    index(path, scan)
    path.write_text("one\ntwo\nthree\nfour\n")
    assert index(path, scan) == [[0, 4, 8, 14], [4, 8, 14, 19]]
    assert scan.scans == 2


def test_it_is_made_again_when_only_the_time_is_another(path: Path) -> None:
    scan = Lines()
    index(path, scan)
    os.utime(path, ns=(1, 1))
    index(path, scan)
    assert scan.scans == 2


def test_another_kind_has_another_index(path: Path) -> None:
    scan = Lines()
    index(path, scan, "lines(header=True)")
    index(path, scan, "lines(header=False)")
    assert scan.scans == 2


def stored(path: Path, numbers: object = None, **changes: object) -> bytes:
    """An index as it is kept, with whatever is to be wrong in it, and right checksums."""
    status = path.stat()
    values: dict[str, object] = {
        "version": 2,
        "kind": "lines",
        "of": f"{status.st_size}-{status.st_mtime_ns}",
        "columns": {"starts": 3, "stops": 3},
    }
    data = bytearray()
    writer = PieceWriter(data.extend)
    for column in EXPECTED if numbers is None else numbers:  # type: ignore[attr-defined]
        writer.add(len(column), np.array(column, dtype="<i8").tobytes())
    writer.finish({**values, **changes})
    return bytes(data)


def footer(text: bytes, length: int | None = None, check: int | None = None) -> bytes:
    check = zlib.crc32(text) if check is None else check
    tail = struct.pack("<QL8s", len(text) if length is None else length, check, b"BUSHELCE")
    return b"BUSHELC1" + text + tail


DAMAGED: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda path: b"",
    "magic": lambda path: b"SOMETHING else and longer than that",
    "an older one": lambda path: b"BUSHELIX" + struct.pack("<Q", 2) + b"{}" + bytes(48),
    "cut": lambda path: stored(path)[:-1],
    "longer": lambda path: stored(path) + b"x",
    "footer huge": lambda path: footer(b"{}", length=2**63),
    "footer wrong": lambda path: footer(b"{}", check=5),
    "no json": lambda path: footer(b"\xff\xfe{{"),
    "deep json": lambda path: footer(b"[" * 200_000),
    "a list": lambda path: footer(b"[]"),
    "no pieces": lambda path: footer(b'{"blocks": 3}'),
    "a piece at a text": lambda path: footer(b'{"blocks": [["8", 1, 2]]}'),
    "a piece far away": lambda path: footer(b'{"blocks": [[%d, 1, 2]]}' % 2**60),
    "a piece before": lambda path: footer(b'{"blocks": [[-8, 1, 2]]}'),
    "version": lambda path: stored(path, version=3),
    "of another": lambda path: stored(path, of="1-1"),
    "count negative": lambda path: stored(path, columns={"starts": -3, "stops": 9}),
    "count huge": lambda path: stored(path, columns={"starts": 2**62, "stops": 3}),
    "count another": lambda path: stored(path, columns={"starts": 2, "stops": 4}),
    "count a text": lambda path: stored(path, columns={"starts": "3", "stops": 3}),
    "counts a list": lambda path: stored(path, columns=["starts", "stops"]),
    "other columns": lambda path: stored(path, columns={"a": 3, "b": 3}),
    "before the file": lambda path: stored(path, [[-1, 4, 8], [4, 8, 14]]),
    "after the file": lambda path: stored(path, [[0, 4, 8], [4, 8, 15]]),
    "a bit": lambda path: stored(path).replace(b"\x0e", b"\x0c", 1),
}


def test_a_good_one_is_believed(path: Path) -> None:
    scan = Lines()
    beside(path).write_bytes(stored(path))
    assert index(path, scan) == EXPECTED
    assert scan.scans == 0


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_one_is_made_again(path: Path, damage: str) -> None:
    scan = Lines()
    beside(path).write_bytes(DAMAGED[damage](path))
    assert index(path, scan) == EXPECTED
    assert scan.scans == 1
    assert index(path, scan) == EXPECTED
    assert scan.scans == 1


def test_a_long_one_is_mapped(path: Path) -> None:
    path.write_text("line\n" * 20_000)
    scan = Lines()
    made = index_of(LocalFile(str(path)), "lines", NAMES, scan)
    kept = index_of(LocalFile(str(path)), "lines", NAMES, scan)
    assert scan.scans == 1
    for columns in (made, kept):
        assert columns["starts"].tolist() == list(range(0, 100_000, 5))
        assert columns["stops"].tolist() == list(range(5, 100_001, 5))
        for column in columns.values():
            assert column[:].flags.aligned
            assert not column[:].flags.writeable  # It is everybody's.


@pytest.mark.parametrize("place", [8, 9, 1_048_584, 4_000_000])
def test_a_long_one_that_is_damaged_is_made_again_when_that_is_seen(
    path: Path, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("line\n" * 300_000)
    scan = Lines()
    index_of(LocalFile(str(path)), "lines", NAMES, scan)
    with beside(path).open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 4]))
    kept = index_of(LocalFile(str(path)), "lines", NAMES, scan)
    assert scan.scans == 1  # Nobody has looked.
    everywhere = np.array([0, 1, 299_999, -1, 131_072])
    assert kept["stops"][everywhere].tolist() == [5, 10, 1_500_000, 1_500_000, 655_365]
    assert (kept["starts"][3], kept["starts"][-1], len(kept["starts"])) == (15, 1_499_995, 300_000)
    assert kept["starts"][5:9].tolist() == [25, 30, 35, 40]
    assert kept["starts"].tolist() == list(range(0, 1_500_000, 5))
    assert kept["stops"].tolist() == list(range(5, 1_500_001, 5))
    assert scan.scans == 2
    assert caplog.text.count("is damaged") == 1
    assert index(path, scan)[0][-1] == 1_499_995
    assert scan.scans == 2
    with pytest.raises(IndexError):
        kept["starts"][np.array([300_000])]


@pytest.mark.parametrize("looked_before", [True, False])
def test_a_long_one_that_is_cut_short_while_it_is_used(path: Path, looked_before: bool) -> None:
    path.write_text("line\n" * 300_000)
    scan = Lines()
    index_of(LocalFile(str(path)), "lines", NAMES, scan)
    kept = index_of(LocalFile(str(path)), "lines", NAMES, scan)
    if looked_before:
        assert kept["starts"].tolist()[-1] == kept["starts"][-1] == 1_499_995

    def still_right() -> bool:
        os.truncate(beside(path), 5000)
        return [kept[name][-1] for name in NAMES] == [1_499_995, 1_500_000]

    assert true_in_a_fork(still_right)
    assert index(path, scan)[1][-1] == 1_500_000


def test_where_it_cannot_lie_beside_the_file_it_lies_in_the_cache(
    path: Path, tmp_path: Path
) -> None:
    scan = Lines()
    # A folder of that name: nobody can write a file there, not even root.
    beside(path).mkdir()
    assert index(path, scan) == index(path, scan) == EXPECTED
    assert scan.scans == 1
    (name,) = os.listdir(tmp_path / "cache" / f"index-{os.geteuid()}")
    assert name.endswith(".bushel-index")
    assert sorted(os.listdir(path.parent)) == [beside(path).name, path.name]


def test_where_it_cannot_be_kept_it_is_made_each_time(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = Lines()
    beside(path).mkdir()
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert index(path, scan) == index(path, scan) == EXPECTED
    assert scan.scans == 2


def test_an_error_while_looking_leaves_nothing(path: Path) -> None:
    def fail(file: ByteFile, progress: ProgressLine) -> Columns:
        raise FileError("no line ends here")

    with pytest.raises(FileError, match="no line ends here"):
        index_of(LocalFile(str(path)), "lines", NAMES, fail)
    assert os.listdir(path.parent) == [path.name]
    assert index(path, Lines()) == EXPECTED


BUILDER = """
import sys, time
import numpy as np
from bushel.files.index import index_of
from bushel.files.local import LocalFile

def scan(file, progress):
    with open(sys.argv[2], "a") as log:
        log.write("scan\\n")
    print("in", flush=True)
    sys.stdin.readline()
    ends = np.array([4, 8, 14])
    return {"starts": ends - 4, "stops": ends}

print("ready", flush=True)
index_of(LocalFile(sys.argv[1]), "lines", ("starts", "stops"), scan)
print("done", flush=True)
"""


def test_processes_that_want_it_together_make_it_once(path: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", BUILDER, str(path), str(log)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    builders = [subprocess.Popen(command, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    try:
        for builder in builders:
            assert builder.stdout.readline() == "ready\n"
        # Whichever is in, the others wait for it; nobody else is told to go on.
        for builder in builders:
            builder.stdin.write("go on\n")
            builder.stdin.flush()
        for builder in builders:
            assert builder.communicate(timeout=PATIENCE_SECONDS)[0].endswith("done\n")
    finally:
        for builder in builders:
            builder.kill()
            builder.communicate()
    assert log.read_text() == "scan\n"


def test_a_name_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("one\ntwo\n")
    assert len(TextLinesDataSource("a.txt")) == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".a.txt")]


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")
    with open(path, "w") as file:
        file.write("one\ntwo\n")
    assert list(TextLinesDataSource(path)) == ["one", "two"]
