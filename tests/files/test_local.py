"""Files on this machine: ranges of them, and what goes wrong."""

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.errors import FileError, MissingFileError
from bushel.files.local import LocalFile, OpenFiles, open_file, read_merged
from tests.files.forks import true_in_a_fork
from tests.property.profile import tried


class Spoken:
    """Bytes that note what is read of them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> bytes:
        self.reads.append((start, stop))
        return self.data[start:stop]


SIZE = 400


@tried
@given(
    st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 60)), max_size=30),
    st.integers(0, 50),
    st.integers(1, 120),
    st.none() | st.integers(1, 60),
)
def test_merged_reads_give_what_single_reads_give(
    wanted: list[tuple[int, int]], gap: int, most: int, long: int | None
) -> None:
    data = bytes(number % 251 for number in range(SIZE))
    ranges = [(start, min(SIZE, start + length)) for start, length in wanted]
    starts = np.array([start for start, _ in ranges], dtype=np.int64)
    stops = np.array([stop for _, stop in ranges], dtype=np.int64)
    file = Spoken(data)
    records = read_merged(file, starts, stops, gap, most, long)
    assert records == [data[start:stop] for start, stop in ranges]
    longest = max((stop - start for start, stop in ranges), default=0)
    assert all(stop - start <= max(most, longest) for start, stop in file.reads)
    # Nothing is read that is farther from a range than a gap.
    for start, stop in file.reads:
        covered = np.zeros(SIZE + 1, dtype=np.bool_)
        for begin, end in ranges:
            covered[begin:end] = True
        run = longest_run(~covered[start:stop])
        assert run <= gap


def longest_run(flags: np.ndarray) -> int:
    longest = current = 0
    for flag in flags.tolist():
        current = current + 1 if flag else 0
        longest = max(longest, current)
    return longest


def test_neighbours_are_one_read_and_strangers_are_not() -> None:
    file = Spoken(bytes(100))
    read_merged(file, np.array([50, 0, 12]), np.array([60, 10, 20]), 5, 1000)
    assert file.reads == [(0, 20), (50, 60)]


def test_long_ranges_are_read_alone_and_not_copied_once_more() -> None:
    file = Spoken(bytes(100))
    starts, stops = np.array([0, 10, 20, 60, 70]), np.array([10, 20, 60, 70, 80])
    read_merged(file, starts, stops, 0, 1000, long=40)
    assert file.reads == [(0, 20), (20, 60), (60, 80)]


def test_a_merged_read_is_no_longer_than_allowed() -> None:
    file = Spoken(bytes(100))
    read_merged(file, np.arange(0, 100, 10), np.arange(10, 110, 10), 0, 25)
    assert file.reads == [(0, 20), (20, 40), (40, 60), (60, 80), (80, 100)]


def test_reads_ranges_in_the_order_asked(tmp_path: Path) -> None:
    path = tmp_path / "letters"
    path.write_bytes(b"abcdefghij")
    file = open_file(str(path))
    assert file.size == 10
    assert file.read(2, 5) == b"cde"
    assert file.read_many(np.array([7, 0, 3, 3]), np.array([9, 2, 3, 4])) == [
        b"hi",
        b"ab",
        b"",
        b"d",
    ]
    file.check()


def test_a_missing_file_and_a_folder_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"there is no file '.*nothing'\."):
        LocalFile(str(tmp_path / "nothing"))
    with pytest.raises(FileError, match=r"is a folder, and a file was expected"):
        LocalFile(str(tmp_path))


def test_a_pipe_is_no_file_to_read_ranges_of(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(FileError, match="no regular file"):
        LocalFile(str(path))


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x")
    path.chmod(0)

    def is_refused() -> bool:
        if os.geteuid() == 0:
            os.seteuid(65534)  # Root may read everything.
        with pytest.raises(FileError, match="cannot be read: Permission denied"):
            LocalFile(str(path))
        return True

    assert true_in_a_fork(is_refused)


def test_a_file_that_was_cut_short_is_an_error_with_the_range(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(2000))
    file = LocalFile(str(path))
    os.truncate(path, 1500)
    text = re.escape("ends at byte 1,500, and bytes 1,000 to 2,000 were wanted")
    with pytest.raises(FileError, match=text):
        file.read(1000, 2000)
    with pytest.raises(FileError, match=r"it had 2,000 bytes and now has 1,500"):
        file.check()


def test_a_file_that_was_replaced_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    file = LocalFile(str(path))
    (tmp_path / "other").write_bytes(b"after it")
    os.replace(tmp_path / "other", path)
    file.check()
    assert file.read(0, 6) == b"before"
    assert LocalFile(str(path)).stamp != file.stamp


def test_an_open_file_opens_itself_again_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello")
    file = LocalFile(str(path))
    again = pickle.loads(pickle.dumps(file))
    file.close()
    file.close()
    assert again.read(0, 5) == b"hello"


def test_only_a_few_files_are_open_at_once(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).write_bytes(b"%d" % number)
    paths = [str(tmp_path / str(number)) for number in range(4)]
    files = OpenFiles(most=2)
    held = files.get(paths[0])
    assert files.get(paths[0]) is held
    assert [files.get(path).read(0, 1) for path in paths] == [b"0", b"1", b"2", b"3"]
    assert held.read(0, 1) == b"0"  # Given up, and still open for who holds it.
    assert files.get(paths[0]) is not held
    assert pickle.loads(pickle.dumps(files)).get(paths[1]).read(0, 1) == b"1"


def test_a_forked_process_opens_files_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello")
    files = OpenFiles()
    held = files.get(str(path))

    def is_another() -> bool:
        other = files.get(str(path))
        return other is not held and other.read(0, 5) == b"hello"

    # As a thread that was there at the fork, and is not any more, would have left it.
    with files._lock:
        assert true_in_a_fork(is_another)
