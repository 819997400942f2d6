"""Remote files: real servers on this machine, in good days and bad."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel.errors import FileError, MissingFileError, MissingPackageError, PlanError
from bushel.files import remote, retry, stores
from bushel.files.local import ByteFile, OpenFiles, open_file
from bushel.files.paths import expand
from bushel.files.remote import RemoteFile
from bushel.files.remote_cache import PIECE
from tests.files.forks import true_in_a_fork
from tests.files.server import Server
from tests.later import later
from tests.patience import PATIENCE_SECONDS
from tests.property.profile import tried

boto3 = later("boto3")

SIZE = 3 * PIECE + 1000
DATA = np.random.default_rng(0).bytes(SIZE)


@pytest.fixture(params=["cached", "uncached"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "uncached":
        monkeypatch.setenv("BUSHEL_CACHE_BYTES", "0")


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_CACHE_BYTES", "0")


def many(file: ByteFile, ranges: list[tuple[int, int]]) -> list[bytes]:
    starts = np.array([start for start, _ in ranges], dtype=np.int64)
    return file.read_many(starts, np.array([stop for _, stop in ranges], dtype=np.int64))


RANGES = [(SIZE - 5, SIZE), (0, 10), (7, 7), (PIECE - 3, PIECE + 3), (5, 2 * PIECE + 1), (0, SIZE)]


class TestHttp:
    @pytest.mark.usefixtures("either_way")
    def test_reads_what_is_there(self, server: Server) -> None:
        server.files["a.bin"] = DATA
        file = open_file(server.url("a.bin"))
        assert isinstance(file, RemoteFile)
        assert file.size == SIZE
        assert file.read(3, 8) == DATA[3:8]
        assert many(file, RANGES) == [DATA[start:stop] for start, stop in RANGES]
        assert many(file, []) == []
        file.check()

    @pytest.mark.usefixtures("either_way")
    def test_an_empty_file(self, server: Server) -> None:
        server.files["empty"] = b""
        file = RemoteFile(server.url("empty"))
        assert file.size == 0
        assert many(file, [(0, 0)]) == [b""]

    @pytest.mark.usefixtures("either_way")
    def test_past_the_end(self, server: Server) -> None:
        server.files["a.bin"] = b"hello"
        with pytest.raises(FileError, match=r"has 5 bytes, and bytes 3 to 9 were wanted"):
            RemoteFile(server.url("a.bin")).read(3, 9)

    @pytest.mark.usefixtures("uncached")
    def test_neighbours_are_one_request_and_long_ones_several(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        many(file, [(1000, 2000), (0, 10), (300_000, 300_010)])
        assert sorted(server.asked) == [("a.bin", 0, 2000), ("a.bin", 300_000, 300_010)]
        server.asked.clear()
        monkeypatch.setattr(remote, "_MOST_AT_ONCE", 100_000)
        file = RemoteFile(server.url("a.bin"))
        assert many(file, [(50, 250_050)]) == [DATA[50:250_050]]
        assert [asked[1:] for asked in sorted(server.asked)] == [
            (50, 100_050),
            (100_050, 200_050),
            (200_050, 250_050),
        ]

    @pytest.mark.usefixtures("uncached")
    def test_ranges_that_need_several_answers(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(remote, "_MOST_AT_ONCE", 100_000)
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        ranges = [(99_990, 100_010), (0, SIZE), (300_000, 500_001), (100_000, 200_000), (5, 5)]
        assert many(file, ranges) == [DATA[start:stop] for start, stop in ranges]

    @pytest.mark.usefixtures("uncached")
    def test_requests_are_under_way_together(self, server: Server) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        server.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            records = pool.submit(many, file, [(0, 1), (200_000, 200_001), (400_000, 400_001)])
            # None of them is answered before all have come.
            for _ in range(3):
                assert server.waiting.acquire(timeout=PATIENCE_SECONDS)
            server.gate.set()
            assert records.result(PATIENCE_SECONDS) == [
                DATA[start : start + 1] for start in (0, 200_000, 400_000)
            ]

    @pytest.mark.usefixtures("either_way")
    @pytest.mark.parametrize("fault", ["503", "500", "429", "408", "reset", "cut", "short"])
    def test_accidents_are_tried_again(self, server: Server, fault: str) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        server.faults.extend([fault] * (retry.MOST_ATTEMPTS - 1))
        assert file.read(100, 200) == DATA[100:200]
        assert not server.faults

    @pytest.mark.usefixtures("uncached")
    @pytest.mark.parametrize(
        ("fault", "text"),
        [
            ("503", "failed with Server returned .* 503 Service Unavailable"),
            ("reset", r"error sending request \(Connection reset by peer\)"),
            ("cut", "failed with an answer that broke off"),
            ("short", "an answer of 50 bytes for 100"),
        ],
    )
    def test_lasting_trouble_is_told_with_the_range_and_the_attempts(
        self, server: Server, fault: str, text: str
    ) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        server.faults.extend([fault] * 100)
        with pytest.raises(FileError, match=text) as caught:
            file.read(1100, 1200)
        message = str(caught.value)
        assert f"bytes 1,100 to 1,200 of '{server.url('a.bin')}' could not be read" in message
        assert f"in {retry.MOST_ATTEMPTS} attempts" in message
        assert 100 - len(server.faults) == retry.MOST_ATTEMPTS

    @pytest.mark.parametrize("fault", ["404", "403", "400"])
    def test_refusals_are_not_tried_again(self, server: Server, fault: str) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        server.faults.extend([fault] * 2)
        expected = {"404": "there is no file", "403": "may not be read", "400": "400"}[fault]
        with pytest.raises(FileError, match=expected) as caught:
            file.read(0, 10)
        assert isinstance(caught.value, MissingFileError) == (fault == "404")
        assert len(server.faults) == 1

    def test_a_missing_file(self, server: Server) -> None:
        with pytest.raises(MissingFileError, match=r"there is no file 'http.*nothing'\."):
            RemoteFile(server.url("nothing"))

    def test_nobody_there(self, server: Server) -> None:
        url = server.url("a.bin")
        server.server_close()
        with pytest.raises(FileError, match=r"the size of .* could not be read, in 7 attempts"):
            RemoteFile(url)

    def test_no_answer_at_all(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        monkeypatch.setattr(stores, "PATIENCE_SECONDS", 0.01)
        monkeypatch.setattr(retry, "MOST_ATTEMPTS", 2)
        stores._stores.made.clear()
        monkeypatch.setattr(file._backend, "_place", stores.store_of(file.path))
        server.gate.clear()
        with pytest.raises(FileError, match=r"in 2 attempts; .* \(no answer in time\)"):
            file.read(0, 10)

    @pytest.mark.parametrize("data", [DATA[::-1], DATA[:1000], DATA + b"more"])
    def test_a_file_that_was_replaced_is_noticed(self, server: Server, data: bytes) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        file.read(0, 10)
        server.files["a.bin"] = data
        with pytest.raises(FileError, match=r"was replaced while it was being read") as caught:
            file.read(2 * PIECE, 2 * PIECE + 10)
        assert "Make the source anew" in str(caught.value)
        again = RemoteFile(server.url("a.bin"))
        assert again.stamp != file.stamp
        assert again.read(0, 10) == data[:10]
        # What is kept of the old one is of the old one.
        assert file.read(0, 10) == DATA[:10]

    @pytest.mark.usefixtures("either_way")
    def test_a_server_without_ranges(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        server.knows_ranges = False
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        assert many(file, RANGES) == [DATA[start:stop] for start, stop in RANGES]
        monkeypatch.setattr(stores, "_MOST_WHOLE", 100)
        server.files["b.bin"] = DATA
        with pytest.raises(FileError, match=r"the server sends all of its 787,432 bytes each time"):
            RemoteFile(server.url("b.bin")).read(0, 10)

    def test_a_file_of_which_only_the_size_is_known_is_not_kept(
        self, server: Server, cache: Path
    ) -> None:
        server.has_etags = False
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        assert file.read(0, 10) == DATA[:10]
        assert not cache.exists()


@tried
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 80)), max_size=20))
def test_requests_cover_what_is_asked_for(wanted: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "_GAP", 30)
        starts = np.array([start for start, _ in wanted], dtype=np.int64)
        stops = np.array([start + length for start, length in wanted], dtype=np.int64)
        spans = remote._spans(starts, stops, 100)
    asked = {byte for start, stop in spans for byte in range(start, stop)}
    assert asked >= {byte for start, length in wanted for byte in range(start, start + length)}
    assert sum(stop - start for start, stop in spans) == len(asked)  # Nothing twice.
    assert all(stop - start <= 100 for start, stop in spans)


class TestS3:
    @pytest.fixture
    def bucket(self, s3: str, request: pytest.FixtureRequest) -> Iterator[Any]:
        name = "b" + re.sub(r"\W", "-", request.node.name)[:40].strip("-").replace("_", "-").lower()
        bucket = boto3.resource("s3").Bucket(name)
        bucket.create()
        yield bucket
        bucket.objects.delete()

    @pytest.mark.usefixtures("either_way")
    def test_reads_what_is_there(self, bucket: Any) -> None:
        bucket.put_object(Key="data/a.bin", Body=DATA)
        file = RemoteFile(f"s3://{bucket.name}/data/a.bin")
        assert many(file, RANGES) == [DATA[start:stop] for start, stop in RANGES]
        assert many(pickle.loads(pickle.dumps(file)), RANGES[:2]) == [DATA[-5:], DATA[:10]]

    def test_a_pickle_holds_a_name_and_no_key(self, bucket: Any) -> None:
        bucket.put_object(Key="a.bin", Body=b"hello")
        file = RemoteFile(f"s3://{bucket.name}/a.bin")
        file.read(0, 5)
        assert b"nothing" not in pickle.dumps(file)
        assert b"anybody" not in pickle.dumps(file)

    def test_what_is_missing(self, bucket: Any) -> None:
        with pytest.raises(MissingFileError, match=r"there is no file 's3://.*/nothing'"):
            RemoteFile(f"s3://{bucket.name}/nothing")
        with pytest.raises(MissingFileError, match=r"there is no file 's3://no-such-bucket"):
            RemoteFile("s3://no-such-bucket/a.bin")
        bucket.put_object(Key="data/a.bin", Body=b"hello")
        with pytest.raises(FileError, match="is a folder, and a file was expected"):
            RemoteFile(f"s3://{bucket.name}/data")

    def test_a_file_that_was_replaced_or_removed(self, bucket: Any) -> None:
        bucket.put_object(Key="a.bin", Body=DATA)
        file = RemoteFile(f"s3://{bucket.name}/a.bin")
        bucket.put_object(Key="a.bin", Body=DATA[::-1])
        with pytest.raises(FileError, match=r"was replaced .* its ETag was .* and now is"):
            file.read(0, 10)
        bucket.put_object(Key="a.bin", Body=b"short")
        with pytest.raises(FileError, match=r"was replaced .* its ETag was .* and now is"):
            file.read(PIECE, PIECE + 10)
        bucket.objects.delete()
        with pytest.raises(MissingFileError):
            file.read(0, 10)

    @pytest.fixture
    def faulty(self, s3: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> RemoteFile:
        """A file on a server that is less reliable than the other."""
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url("").rstrip("/"))
        monkeypatch.setenv("BUSHEL_CACHE_BYTES", "0")
        server.has_dates = True
        server.files["bucket/a.bin"] = DATA
        return RemoteFile("s3://bucket/a.bin")

    @pytest.mark.parametrize("fault", ["503", "500", "429", "reset", "cut", "short"])
    def test_accidents_are_tried_again(
        self, faulty: RemoteFile, server: Server, fault: str
    ) -> None:
        server.faults.extend([fault] * (retry.MOST_ATTEMPTS - 1))
        assert faulty.read(100, 200) == DATA[100:200]
        assert not server.faults

    @pytest.mark.parametrize("fault", ["503", "cut", "short"])
    def test_lasting_trouble_is_told_after_as_many_attempts_as_it_says(
        self, faulty: RemoteFile, server: Server, fault: str
    ) -> None:
        server.faults.extend([fault] * 1000)
        with pytest.raises(FileError, match=r"bytes 100 to 200 of 's3:.* in 7 attempts"):
            faulty.read(100, 200)
        assert 1000 - len(server.faults) == retry.MOST_ATTEMPTS

    def test_a_refusal_is_not_tried_again(self, faulty: RemoteFile, server: Server) -> None:
        server.faults.extend(["403"] * 10)
        with pytest.raises(FileError, match=r"'s3://bucket/a.bin' may not be read"):
            faulty.read(100, 200)
        assert len(server.faults) == 9

    def test_names_globs_and_folders(self, bucket: Any) -> None:
        for key in ["d/b-10.txt", "d/b-9.txt", "d/x.md", "d/_SUCCESS", "d/.h.txt", "d/in/c.txt"]:
            bucket.put_object(Key=key, Body=b"x")
        root = f"s3://{bucket.name}/d"
        both = [f"{root}/b-9.txt", f"{root}/b-10.txt"]
        assert expand(f"{root}/b-*.txt") == both
        assert expand(root, [".txt"]) == expand(root + "/", [".txt"]) == both
        assert expand(f"{root}/**/*.txt")[-1] == f"{root}/in/c.txt"
        assert expand([f"{root}/x.md", f"{root}/b-9.txt"]) == [f"{root}/x.md", f"{root}/b-9.txt"]
        with pytest.raises(MissingFileError, match=r"no file matches 's3://.*\.tar'"):
            expand(f"{root}/*.tar")
        with pytest.raises(MissingFileError, match=r"no file that ends in \.tar; it has 3 others"):
            expand(root, [".tar"])
        with pytest.raises(MissingFileError, match=r"there is no file"):
            expand(f"s3://{bucket.name}/elsewhere")
        # As some programs write tables: a folder that is called like a file.
        bucket.put_object(Key="t.txt/part-0.txt", Body=b"x")
        assert expand(f"s3://{bucket.name}/t.txt", [".txt"]) == [
            f"s3://{bucket.name}/t.txt/part-0.txt"
        ]
        # Something new is seen at once.
        bucket.put_object(Key="d/b-11.txt", Body=b"x")
        assert len(expand(root, [".txt"])) == 3

    def test_a_list_of_names_costs_no_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # Nobody there.
        names = [f"s3://bucket/{number}.txt" for number in range(100)]
        assert expand(names, [".txt"]) == names

    def test_no_credentials(self, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
        monkeypatch.setitem(fsspec.config.conf, "s3", {"anon": False})
        with pytest.raises(FileError, match=r"may not be read: no credentials were found.*anon"):
            RemoteFile("s3://bucket/a.bin")


class TestOtherSystems:
    @pytest.fixture
    def memory(self) -> Iterator[Any]:
        memory = fsspec.filesystem("memory")
        memory.pipe({"/d/a-10.txt": b"ten", "/d/a-9.txt": b"nine!", "/d/b.md": b"x"})
        yield memory
        memory.rm("/d", recursive=True)

    def test_any_that_fsspec_knows(self, memory: Any, cache: Path) -> None:
        assert expand("memory://d/a-*") == ["memory://d/a-9.txt", "memory://d/a-10.txt"]
        assert expand("memory://d", [".txt"]) == ["memory://d/a-9.txt", "memory://d/a-10.txt"]
        file = open_file("memory://d/a-9.txt")
        assert file.read(1, 4) == b"ine"
        assert many(file, [(4, 5), (0, 2)]) == [b"!", b"ni"]
        assert not cache.exists()  # It is here already.
        memory.pipe("/d/a-9.txt", b"no")
        with pytest.raises(FileError, match="an answer of 2 bytes for 5"):
            file.read(0, 5)
        assert open_file("memory://d/a-9.txt").stamp != file.stamp

    def test_a_chain_of_systems(self, memory: Any, tmp_path: Path) -> None:
        path = "simplecache::memory://d/a-9.txt"
        assert open_file(path).read(0, 4) == b"nine"

    def test_a_protocol_that_nobody_knows(self) -> None:
        with pytest.raises(PlanError, match=r"'nosuch://a' cannot be read: Protocol not known"):
            open_file("nosuch://a")

    def test_a_package_that_is_not_installed(self) -> None:
        # fsspec knows the protocol, and no package that speaks it is among the extras.
        with pytest.raises(MissingPackageError, match=r"gdrive"):
            open_file("gdrive://folder/a")


class TestWebLists:
    def test_a_page_with_links_is_a_folder(self, server: Server) -> None:
        links = ["a-10.txt", "a-9.txt", "b.md", "in/", "?C=N;O=D", "/elsewhere.txt", ".h.txt"]
        page = "".join(f'<a href="{link}">{link}</a>\n' for link in links)
        server.files["d/"] = page.encode()
        both = [server.url("d/a-9.txt"), server.url("d/a-10.txt")]
        assert expand(server.url("d/"), [".txt"]) == both
        assert expand(server.url("d/a-*.txt")) == both

    def test_without_such_a_page_globs_are_refused(self, server: Server) -> None:
        with pytest.raises(MissingFileError, match=r"no file matches .* name the files"):
            expand(server.url("d/*.txt"))
        server.files["d/"] = b"<p>nothing here</p>"
        with pytest.raises(MissingFileError, match=r"it is empty.* name the files"):
            expand(server.url("d/"), [".txt"])

    def test_a_question_is_no_glob(self, server: Server) -> None:
        server.files["get?file=a[1].txt"] = b"hello"
        (path,) = expand(server.url("get?file=a[1].txt"))
        assert open_file(path).read(0, 5) == b"hello"


class Tens:
    """A source that reads ten bytes of a file for a record."""

    def __init__(self, path: str) -> None:
        self.path, self.files = path, OpenFiles()

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> tuple[int, bytes]:
        file = self.files.get(self.path)
        return os.getpid(), file.read(index * 4000, index * 4000 + 10)


class TestProcesses:
    def test_workers_read_for_themselves(self, server: Server) -> None:
        server.files["a.bin"] = bytes(4000 * 200) + DATA
        source = Tens(server.url("a.bin"))
        assert source[3][1] == bytes(10)  # The connection that this makes is not for others.
        dataset = bushel.MapDataset.source(source).shuffle(seed=1).to_iter_dataset()
        options = bushel.MultiprocessingOptions(num_workers=2)
        read = list(dataset.mp_prefetch(options))
        assert [record for _, record in read] == [bytes(10)] * 200
        processes = {process for process, _ in read}
        assert len(processes) == 2
        assert os.getpid() not in processes

    def test_options_come_from_the_environment(self, server: Server) -> None:
        server.files["a.bin"] = DATA
        server.key = "secret"
        with pytest.raises(FileError, match=r"may not be read: .*403"):
            RemoteFile(server.url("a.bin"))
        code = (
            "import sys; from bushel.files.local import open_file;"
            "sys.stdout.buffer.write(open_file(sys.argv[1]).read(0, 10))"
        )
        out = subprocess.run(
            [sys.executable, "-c", code, server.url("a.bin")],
            env={**os.environ, "FSSPEC_HTTP": '{"headers": {"X-Key": "secret"}}'},
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        assert out.stdout == DATA[:10]

    def test_options_may_change(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        server.files["a.bin"] = DATA
        server.key = "secret"
        with pytest.raises(FileError, match="may not be read"):
            RemoteFile(server.url("a.bin"))
        monkeypatch.setitem(fsspec.config.conf, "http", {"headers": {"X-Key": "secret"}})
        assert RemoteFile(server.url("a.bin")).read(0, 10) == DATA[:10]

    @pytest.mark.usefixtures("either_way")
    def test_a_forked_process_reads_on(self, server: Server) -> None:
        server.files["a.bin"] = DATA
        file, files = RemoteFile(server.url("a.bin")), OpenFiles()
        wanted = [(0, 10), (2 * PIECE, 2 * PIECE + 10), (PIECE, PIECE + 1)]
        expected = [DATA[start:stop] for start, stop in wanted]
        assert many(file, wanted[:1]) == many(files.get(file.path), wanted[:1]) == expected[:1]

        def reads() -> bool:
            return many(file, wanted) == many(files.get(file.path), wanted) == expected

        # Locks that other threads held at the fork, who do not exist in the child.
        with remote._here.lock, stores._stores.lock:
            assert true_in_a_fork(reads)
        assert many(file, wanted) == expected

    @pytest.mark.usefixtures("either_way")
    def test_many_threads(self, server: Server) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        numbers = np.random.default_rng(1).integers(0, SIZE - 100, (8, 20))

        def read(starts: Any) -> bool:
            records = file.read_many(starts, starts + 100)
            return records == [DATA[start : start + 100] for start in starts.tolist()]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, numbers))
