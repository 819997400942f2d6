"""The cache on the disk: shared, bounded, and believed only as far as its checksums go."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bushel.errors import PlanError
from bushel.files import evict
from bushel.files import remote_cache as module
from bushel.files.evict import FolderLimit
from bushel.files.index import index_of
from bushel.files.local import open_file
from bushel.files.remote import RemoteFile
from bushel.files.remote_cache import PIECE, Cache, CachedFile, GoneError, cache_here
from tests.files.forks import true_in_a_fork
from tests.files.server import Server
from tests.files.test_index import EXPECTED, NAMES, Lines
from tests.patience import PATIENCE_SECONDS

PIECES = 8
SIZE = PIECES * PIECE - 1000
DATA = np.random.default_rng(0).bytes(SIZE)


@pytest.fixture
def file(server: Server) -> RemoteFile:
    server.files["a.bin"] = DATA
    return RemoteFile(server.url("a.bin"))


def read(file: RemoteFile, *pieces: int) -> bool:
    """Reads a little of each of some pieces, and says whether it was right."""
    starts = np.array(pieces, dtype=np.int64) * PIECE + 100
    records = file.read_many(starts, starts + 50)
    return records == [DATA[start : start + 50] for start in starts.tolist()]


def taken(folder: Path) -> int:
    """The bytes of the disk that a folder takes."""
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir() if path.name != ".lock")


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != ".lock")


def kept(cache: Cache, name: str = "a", size: int = SIZE) -> CachedFile:
    kept = cache.keep(name, "stamp", size)
    assert kept is not None
    return kept


def missing(kept: CachedFile, *pieces: int) -> list[int]:
    starts = np.array(pieces, dtype=np.int64) * PIECE
    return kept.missing(starts, starts + 10)


def piece(number: int) -> bytes:
    return DATA[number * PIECE : (number + 1) * PIECE]


class TestWhatIsKept:
    def test_a_second_read_asks_nobody(self, server: Server, file: RemoteFile) -> None:
        assert read(file, *range(PIECES))
        asked = len(server.asked)
        assert read(file, *range(PIECES))
        assert file.read(0, SIZE) == DATA
        assert RemoteFile(file.path).read(0, SIZE) == DATA
        assert len(server.asked) == asked

    def test_neighbours_come_in_one_request(self, server: Server, file: RemoteFile) -> None:
        assert read(file, 5, 1, 2, 3)
        assert sorted(server.asked) == [
            ("a.bin", PIECE, 4 * PIECE),
            ("a.bin", 5 * PIECE, 6 * PIECE),
        ]

    def test_who_reads_on_and_on_gets_more_at_once(self, server: Server, file: RemoteFile) -> None:
        read = [file.read(start, start + 100_000) for start in range(0, 600_000, 100_000)]
        assert b"".join(read) == DATA[:600_000]
        assert server.asked == [("a.bin", 0, PIECE), ("a.bin", PIECE, SIZE)]

    def test_another_process_reads_what_this_one_kept(
        self, server: Server, file: RemoteFile
    ) -> None:
        assert read(file, 0, 3)
        asked = len(server.asked)
        code = (
            "import sys; from bushel.files.local import open_file;"
            "sys.stdout.buffer.write(open_file(sys.argv[1]).read(3 * 2**18, 3 * 2**18 + 500))"
        )
        out = subprocess.run(
            [sys.executable, "-c", code, file.path],
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        assert out.stdout == DATA[3 * PIECE : 3 * PIECE + 500]
        assert len(server.asked) == asked

    def test_another_version_is_another_file(self, server: Server, file: RemoteFile) -> None:
        assert read(file, 0)
        server.files["a.bin"] = DATA[::-1]
        assert RemoteFile(file.path).read(0, 100) == DATA[::-1][:100]
        assert read(file, 0)

    def test_nobody_else_may_look(self, cache: Path, file: RemoteFile) -> None:
        cache.mkdir(parents=True)
        cache.chmod(0o755)
        assert read(file, 0)
        assert stat.S_IMODE(cache.stat().st_mode) == 0o700
        for path in cache.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_names_are_made_of_hashes(self, cache: Path, server: Server) -> None:
        server.files["../../../../etc/x"] = DATA
        file = RemoteFile(server.url("..%2F..%2F..%2F..%2Fetc%2Fx"))
        assert read(file, 0)
        (entry,) = entries(cache)
        assert len(entry.name) == 64
        assert set(entry.name) <= set("0123456789abcdef")

    def test_ranges_over_the_end_of_a_segment(self, tmp_path: Path) -> None:
        small = Cache(str(tmp_path / "d"), 12 * PIECE)
        assert small.segment_bytes == PIECE
        one = kept(small)
        for number in range(PIECES):
            assert one.put(number, piece(number))
        assert one.read(10, SIZE) == DATA[10:]
        assert one.read(PIECE - 1, PIECE + 1) == DATA[PIECE - 1 : PIECE + 1]

    def test_nothing_at_the_end(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BUSHEL_CACHE_BYTES", str(12 * PIECE))
        server.files["b.bin"] = DATA[: 2 * PIECE]
        file = RemoteFile(server.url("b.bin"))
        end = np.array([2 * PIECE, 5, 2 * PIECE])
        assert file.read_many(end, end) == [b"", b"", b""]
        starts = np.array([2 * PIECE, 2 * PIECE - 3, 0])
        stops = np.array([2 * PIECE, 2 * PIECE, 0])
        assert file.read_many(starts, stops) == [b"", DATA[2 * PIECE - 3 : 2 * PIECE], b""]

    @pytest.mark.parametrize(
        ("gigabytes", "megabytes"), [(0.1, 4), (1.1, 64), (10, 64), (17, 64), (40, 128)]
    )
    def test_what_is_kept_is_found_again_with_another_limit(
        self, gigabytes: float, megabytes: int
    ) -> None:
        assert Cache("", int(gigabytes * 2**30)).segment_bytes == megabytes * 2**20

    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux only")
    def test_no_file_stays_open_for_each_piece(self, tmp_path: Path) -> None:
        here = kept(Cache(str(tmp_path), 1 << 30))
        assert here.put(0, piece(0))
        opened = len(os.listdir("/proc/self/fd"))
        assert all(here.put(number, piece(number)) for number in range(1, PIECES))
        assert len(os.listdir("/proc/self/fd")) == opened

    def test_an_index_of_a_remote_file_is_kept_too(self, server: Server, tmp_path: Path) -> None:
        server.files["a.txt"] = b"one\ntwo\nthree\n"
        scan = Lines()
        for _ in range(2):
            file = open_file(server.url("a.txt"))
            columns = index_of(file, "lines", NAMES, scan)
            assert [columns[name].tolist() for name in NAMES] == EXPECTED
        assert scan.scans == 1
        assert len(os.listdir(tmp_path / "cache" / f"index-{os.geteuid()}")) == 1
        server.files["a.txt"] = b"two\none\nthree\n"
        index_of(open_file(server.url("a.txt")), "lines", NAMES, scan)
        assert scan.scans == 2


class TestDamage:
    @pytest.mark.parametrize("cut", [0, 5, 40, 2000, PIECE + 5000, 2 * PIECE, PIECE + SIZE - 1])
    @pytest.mark.parametrize("same", [True, False])
    def test_a_file_that_was_cut(
        self, server: Server, file: RemoteFile, cache: Path, cut: int, same: bool
    ) -> None:
        assert read(file, *range(PIECES))
        (entry,) = entries(cache)
        os.truncate(entry, cut)
        asked = len(server.asked)
        for _ in range(2):
            assert file.read(0, SIZE) == DATA
            file = file if same else RemoteFile(file.path)
        assert len(server.asked) > asked
        asked = len(server.asked)
        assert read(RemoteFile(file.path), *range(PIECES))
        assert len(server.asked) == asked

    @pytest.mark.parametrize("at", [0, 20, 40, 44, 41 + 8 * 3, PIECE, 2 * PIECE + 7])
    def test_bytes_that_were_changed(
        self, server: Server, file: RemoteFile, cache: Path, at: int
    ) -> None:
        assert read(file, *range(PIECES))
        (entry,) = entries(cache)
        with open(entry, "r+b") as stored:
            stored.seek(at)
            (old,) = stored.read(1)
            stored.seek(at)
            stored.write(bytes([old ^ 64]))
        asked = len(server.asked)
        again = RemoteFile(file.path)
        assert again.read(0, SIZE) == DATA
        assert len(server.asked) > asked
        asked = len(server.asked)
        assert RemoteFile(file.path).read(0, SIZE) == DATA
        assert len(server.asked) == asked

    def test_everything_removed_under_us(self, file: RemoteFile, cache: Path) -> None:
        assert read(file, 0, 1)
        for path in [*cache.iterdir()]:
            path.unlink()
        cache.rmdir()
        # What is open stays open, the rest comes anew.
        assert read(file, *range(PIECES))
        assert read(RemoteFile(file.path), *range(PIECES))

    def test_a_link_that_leads_elsewhere_is_not_followed(
        self, file: RemoteFile, cache: Path, tmp_path: Path
    ) -> None:
        assert read(file, 0)
        (entry,) = entries(cache)
        entry.unlink()
        (tmp_path / "precious").write_bytes(b"precious")
        entry.symlink_to(tmp_path / "precious")
        with pytest.warns(UserWarning, match="read without a cache"):
            assert read(RemoteFile(file.path), 0)
        assert (tmp_path / "precious").read_bytes() == b"precious"

    def test_a_cache_that_cannot_be_written_is_done_without(
        self, file: RemoteFile, tmp_path: Path
    ) -> None:
        (tmp_path / "cache").write_text("a file where a folder should be")
        with pytest.warns(UserWarning, match=r"without a cache.* BUSHEL_CACHE names another"):
            assert read(file, 0, 3)
        assert read(file, 1, 7)  # And nothing is said again.


class TestLimit:
    def test_the_oldest_make_room(self, tmp_path: Path) -> None:
        cache = Cache(str(tmp_path), 8 * PIECE + 9 * 8192)
        one = kept(cache)
        for number in range(PIECES):
            assert one.put(number, piece(number))
        for age, path in enumerate(sorted(tmp_path.iterdir())):
            os.utime(path, (age, age))
        oldest = sorted(tmp_path.iterdir())[1].name
        other = kept(Cache(str(tmp_path), cache.most_bytes), "b", 2 * PIECE)
        assert other.put(0, piece(0))
        assert other.put(1, piece(1))
        assert not (tmp_path / oldest).exists()
        assert taken(tmp_path) <= cache.most_bytes
        # What was given up is noticed, however long it had been open.
        with pytest.raises(GoneError):
            one.read(0, SIZE)
        again = kept(cache)
        assert missing(other, 0, 1) == []
        gone = missing(again, *range(PIECES))
        assert 0 < len(gone) < PIECES
        for number in set(range(PIECES)) - set(gone):
            assert again.read(number * PIECE, number * PIECE + 9) == piece(number)[:9]

    def test_room_is_free_at_once_though_others_have_it_open(self, tmp_path: Path) -> None:
        cache = Cache(str(tmp_path), 4 * (PIECE + 8192))
        one = kept(cache, "a", 3 * PIECE)
        for number in range(3):
            assert one.put(number, piece(number))
        descriptors = [os.open(path, os.O_RDONLY) for path in entries(tmp_path)]
        try:
            other = kept(Cache(str(tmp_path), cache.most_bytes), "b", 3 * PIECE)
            for number in range(3):
                assert other.put(number, piece(number))
            held = sum(os.fstat(descriptor).st_blocks * 512 for descriptor in descriptors)
            unnamed = [fd for fd in descriptors if not os.fstat(fd).st_nlink]
            assert unnamed
            assert all(os.fstat(descriptor).st_size == 0 for descriptor in unnamed)
            assert held <= cache.most_bytes
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def test_the_limit_counts_what_was_there_before(self, tmp_path: Path) -> None:
        (tmp_path / "old").write_bytes(bytes(100_000))
        os.utime(tmp_path / "old", (1, 1))
        (tmp_path / "new").write_bytes(bytes(100_000))
        with FolderLimit(str(tmp_path), 250_000).room(100_000) as room:
            assert room
            assert sorted(os.listdir(tmp_path)) == [".lock", "new"]

    def test_what_has_another_name_elsewhere_keeps_its_contents(self, tmp_path: Path) -> None:
        (tmp_path / "cache").mkdir(mode=0o700)
        (tmp_path / "cache" / "old").write_bytes(bytes(100_000))
        os.link(tmp_path / "cache" / "old", tmp_path / "mine")
        with FolderLimit(str(tmp_path / "cache"), 150_000).room(100_000) as room:
            assert room
        assert os.listdir(tmp_path / "cache") == [".lock"]
        assert (tmp_path / "mine").read_bytes() == bytes(100_000)

    def test_one_who_writes_keeps_the_others_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(evict, "PATIENCE_SECONDS", 0.0)
        one, other = FolderLimit(str(tmp_path), 1000), FolderLimit(str(tmp_path), 1000)
        with one.room(10) as first, other.room(10) as second:
            assert (first, second) == (True, False)
        with FolderLimit(str(tmp_path), 1000).room(10) as third:
            assert third

    @pytest.mark.parametrize("said", [b"", b"nonsense", b"-5", b"9" * 30, b"0"])
    def test_what_the_lock_says_is_not_believed_blindly(self, tmp_path: Path, said: bytes) -> None:
        limit = FolderLimit(str(tmp_path), 250_000)
        with limit.room(100_000) as room:
            assert room
            (tmp_path / "a").write_bytes(bytes(100_000))
        (tmp_path / ".lock").write_bytes(said)
        # A process that comes anew counts; one that is there does so when it is full.
        with FolderLimit(str(tmp_path), 250_000).room(100_000) as room:
            assert room
            assert (tmp_path / "a").exists()
        with limit.room(100_000) as room:
            assert room

    def test_more_than_there_is_room_for_is_refused(self, tmp_path: Path) -> None:
        limit = FolderLimit(str(tmp_path), 1000)
        with limit.room(600) as room:
            assert room
        with limit.room(1001) as room:
            assert not room

    def test_a_file_that_does_not_fit_is_read_past_the_cache(
        self, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("BUSHEL_CACHE_BYTES", str(12 * PIECE))
        server.files["a.bin"] = server.files["b.bin"] = DATA
        first, second = (RemoteFile(server.url(name)) for name in ("a.bin", "b.bin"))
        for _ in range(2):
            assert read(first, 0, 1)
            assert read(second, 0, 4)
        asked = [(name, stop - start) for name, start, stop in server.asked]
        # Of the second one only what was wanted, each time.
        assert sorted(asked) == [("a.bin", 2 * PIECE)] + [("b.bin", 50)] * 4

    @pytest.mark.parametrize("number", ["0", "1000", "-5"])
    def test_none_at_all(
        self, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, number: str
    ) -> None:
        monkeypatch.setenv("BUSHEL_CACHE_BYTES", number)
        server.files["a.bin"] = DATA
        assert read(RemoteFile(server.url("a.bin")), 0)
        assert not cache.exists()

    def test_a_size_that_is_no_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BUSHEL_CACHE_BYTES", "much")
        with pytest.raises(PlanError, match=r"BUSHEL_CACHE_BYTES is a number.* it is 'much'"):
            cache_here()
        monkeypatch.setenv("BUSHEL_CACHE_BYTES", "2e9")
        here = cache_here()
        assert here is not None
        assert here.most_bytes == 2_000_000_000

    def test_what_is_used_is_young(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one = kept(Cache(str(tmp_path), 10**9))
        assert one.put(0, piece(0))
        (entry,) = entries(tmp_path)
        os.utime(entry, (1, 1))
        one.touch()
        assert entry.stat().st_mtime == 1
        monkeypatch.setattr(module, "_TOUCH_SECONDS", -1.0)
        one.touch()
        assert entry.stat().st_mtime > 1


def test_a_forked_process_does_not_wait_for_locks_of_threads_that_it_has_not(
    file: RemoteFile,
) -> None:
    assert read(file, 0)
    assert file._kept is not None
    with file._kept._lock, file._kept._cache.limit._lock:
        assert true_in_a_fork(lambda: read(file, 0, 1, 2))
    assert read(file, 0, 1, 2, 3)
