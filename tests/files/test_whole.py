"""Files are there as a whole or not at all, and locks let one process in."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bushel.files.whole import (
    alone,
    lock_now,
    remove_leftovers,
    replacing,
    unlock,
    written_whole,
)


def test_nothing_is_seen_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")
    with written_whole(str(path)) as out:
        out.write(b"after")
        out.flush()
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")
    with pytest.raises(error), written_whole(str(path)) as out:
        out.write(b"after")
        raise error
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a"]


def test_a_kill_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")
    program = f"""
import os, signal
from bushel.files.whole import written_whole
with written_whole({str(path)!r}) as out:
    out.write(b"after" * 100_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    assert path.read_bytes() == b"before"
    remove_leftovers(str(path))
    assert os.listdir(tmp_path) == ["a"]


@pytest.fixture
def named_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system on which no file is without a name."""
    monkeypatch.delattr(os, "O_TMPFILE")


@pytest.mark.usefixtures("named_only")
def test_what_dead_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    left = [f".a.{number:016x}" for number in range(3)]
    others = [".a.not-hex-not-hex", ".b.0000000000000001", "a.0000000000000001", ".a.12"]
    for name in [*left, *others]:
        (tmp_path / name).write_bytes(b"half")
    target = tmp_path / "elsewhere"
    target.write_bytes(b"whole")
    (tmp_path / f".a.{9:016x}").symlink_to(target)
    (tmp_path / f".a.{8:016x}").mkdir()
    os.mkfifo(tmp_path / f".a.{7:016x}")
    with written_whole(str(path)) as out:
        (alive,) = (
            set(os.listdir(tmp_path))
            - {*left, *others, "elsewhere"}
            - {f".a.{number:016x}" for number in (7, 8, 9)}
        )
        remove_leftovers(str(path))
        out.write(b"new")
    assert alive not in os.listdir(tmp_path)
    assert path.read_bytes() == b"new"
    assert target.read_bytes() == b"whole"
    assert set(os.listdir(tmp_path)) == {"a", "elsewhere", *others} | {
        f".a.{number:016x}" for number in (7, 8, 9)
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_somebody_else_left_stays(tmp_path: Path) -> None:
    theirs = tmp_path / f".a.{1:016x}"
    theirs.write_bytes(b"half")
    os.chown(theirs, 54321, 54321)
    remove_leftovers(str(tmp_path / "a"))
    assert theirs.exists()


@pytest.mark.usefixtures("named_only")
def test_without_nameless_files_it_is_the_same(tmp_path: Path) -> None:
    test_nothing_is_seen_before_the_end(tmp_path)
    for error in (ValueError, KeyboardInterrupt):
        test_a_failure_leaves_what_was_there(tmp_path, error)


def test_a_link_at_a_lock_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    (tmp_path / "lock").symlink_to(target)
    with alone(str(tmp_path / "lock")):
        pass
    assert target.read_bytes() == b"mine"
    (tmp_path / "new").symlink_to(tmp_path / "nowhere")
    with alone(str(tmp_path / "new")):
        pass
    assert not (tmp_path / "nowhere").exists()


def test_who_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with written_whole(str(tmp_path / "a")), written_whole(str(tmp_path / "b"), mode=0o600):
            pass
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"]
    assert modes == [0o640, 0o600]


def test_a_name_for_others_to_write(tmp_path: Path) -> None:
    with replacing(str(tmp_path / "a")) as private:
        Path(private).write_bytes(b"by somebody else")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"by somebody else"
    with pytest.raises(FileNotFoundError), replacing(str(tmp_path / "b")):
        pass  # And who writes nothing has made no file.
    assert os.listdir(tmp_path) == ["a"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    program = f"""
import os
from bushel.files.whole import alone
log = os.open({str(tmp_path / "log")!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for _ in range(50):
    with alone({str(tmp_path / "lock")!r}):
        os.write(log, b"in\\n")
        os.write(log, b"out\\n")
"""
    runs = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [run.wait() for run in runs] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "in\nout\n" * 150
    assert not (tmp_path / "lock").exists()


def test_where_nothing_can_be_locked(tmp_path: Path) -> None:
    with alone(str(tmp_path / "no folder" / "lock")):
        pass


def test_a_lock_is_taken_or_not(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert lock_now(first) and not lock_now(second)
    unlock(first)
    assert lock_now(second)
    os.close(first)
    os.close(second)


@pytest.mark.parametrize("has_names", [False, True])
@pytest.mark.parametrize("lasting", [True, False])
def test_the_disk_has_a_file_before_its_name_and_then_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_names: bool, lasting: bool
) -> None:
    if has_names:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = tmp_path / "a"
    synced = []

    def note(descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        size = None if stat.S_ISDIR(mode) else os.fstat(descriptor).st_size
        synced.append((size, path.exists()))

    monkeypatch.setattr(os, "fsync", note)
    with written_whole(str(path), lasting=lasting) as out:
        out.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert synced == ([(5, False), (None, True)] if lasting else [])
