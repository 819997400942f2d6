"""Object stores and web servers: how many requests, how many at a time, and who asks."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import bushel
from bushel.errors import FileError, MissingFileError
from bushel.files import aws, retry, stores
from bushel.files.local import ByteFile, OpenFiles
from bushel.files.paths import expand
from bushel.files.remote import RemoteFile
from bushel.files.request_pool import MOST_REQUESTS
from tests.files.forks import true_in_a_fork
from tests.files.server import Server
from tests.later import later
from tests.patience import PATIENCE_SECONDS

boto3 = later("boto3")

# Far enough from each other to be requests of their own.
STEP = 200_000
COUNT = 200
DATA = np.arange(COUNT * STEP // 4, dtype=np.int32).tobytes()


@pytest.fixture(autouse=True)
def uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_CACHE_BYTES", "0")


def spread(file: ByteFile, count: int = COUNT) -> list[bytes]:
    starts = np.arange(count, dtype=np.int64) * STEP
    return file.read_many(starts, starts + 100)


EXPECTED = [DATA[number * STEP : number * STEP + 100] for number in range(COUNT)]


class TestBulk:
    def test_each_range_is_asked_for_once(self, server: Server) -> None:
        server.files["a.bin"] = DATA
        assert spread(RemoteFile(server.url("a.bin"))) == EXPECTED
        assert server.heads == 1
        assert sorted(server.asked) == [
            ("a.bin", number * STEP, number * STEP + 100) for number in range(COUNT)
        ]

    @pytest.mark.parametrize(("count", "together"), [(20, 20), (32, 32), (200, 30)])
    def test_many_are_under_way_together(self, server: Server, count: int, together: int) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        server.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            records = pool.submit(spread, file, count)
            # None of them is answered before so many have come.
            for _ in range(together):
                assert server.waiting.acquire(timeout=PATIENCE_SECONDS)
            server.gate.set()
            assert records.result(PATIENCE_SECONDS) == EXPECTED[:count]

    @pytest.mark.parametrize("fault", ["503", "reset", "cut", "short", "404"])
    def test_what_fails_in_bulk_is_tried_again_or_told(self, server: Server, fault: str) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        server.faults.extend([fault] * 3)
        assert spread(file) == EXPECTED
        server.files.clear()
        with pytest.raises(MissingFileError, match="there is no file"):
            spread(file)

    def test_a_file_that_is_replaced_in_the_middle_is_noticed(self, server: Server) -> None:
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        server.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            records = pool.submit(spread, file)
            for _ in range(30):
                assert server.waiting.acquire(timeout=PATIENCE_SECONDS)
            server.files["a.bin"] = DATA[::-1]
            server.gate.set()
            with pytest.raises(FileError, match="was replaced while it was being read"):
                records.result(PATIENCE_SECONDS)

    def test_neighbours_that_are_long_stay_apart(self, server: Server) -> None:
        server.files["a.bin"] = DATA
        assert RemoteFile(server.url("a.bin")).read(5, len(DATA)) == DATA[5:]
        assert max(stop - start for _, start, stop in server.asked) == 1 << 22

    def test_without_etags_an_answer_that_breaks_off_is_asked_for_anew(
        self, server: Server
    ) -> None:
        server.has_etags = False
        server.files["a.bin"] = DATA
        file = RemoteFile(server.url("a.bin"))
        server.faults.extend(["cut"] * (retry.MOST_ATTEMPTS - 1))
        assert file.read(0, 100) == DATA[:100]
        server.faults.extend(["cut"] * 100)
        with pytest.raises(FileError, match=r"in 7 attempts; .* an answer that broke off"):
            file.read(0, 100)
        assert len(server.faults) == 100 - retry.MOST_ATTEMPTS


class TestManyFiles:
    COUNT = 300

    @pytest.fixture
    def lines(self, server: Server) -> list[str]:
        names = [f"part-{number}.jsonl" for number in range(self.COUNT)]
        for number, name in enumerate(names):
            server.files[name] = b"".join(b'{"a": %d}\n' % (10 * number + i) for i in range(10))
        return [server.url(name) for name in names]

    def test_sizes_are_asked_for_together_and_once(
        self, server: Server, lines: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asking = threading.Barrier(MOST_REQUESTS)

        def head(path: str, answer: Any = stores.head) -> stores.Version:
            # Nobody gets through here who comes alone.
            if len(seen) < MOST_REQUESTS:
                seen.append(path)
                asking.wait(PATIENCE_SECONDS)
            found: stores.Version = answer(path)
            return found

        seen: list[str] = []
        monkeypatch.setattr(stores, "head", head)
        source = bushel.sources.JsonLinesDataSource(lines)
        assert server.heads == self.COUNT  # More than are open at a time.
        keys = np.random.default_rng(0).permutation(len(source))
        for block in np.split(keys, 10):
            assert source.__getitems__(block) == [{"a": key} for key in block.tolist()]
        assert server.heads == self.COUNT

    def test_files_are_read_together(self, server: Server, lines: list[str]) -> None:
        source = bushel.sources.JsonLinesDataSource(lines)
        while server.waiting.acquire(blocking=False):
            pass
        server.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            records = pool.submit(source.__getitems__, list(range(0, 10 * self.COUNT, 10)))
            for _ in range(MOST_REQUESTS):
                assert server.waiting.acquire(timeout=PATIENCE_SECONDS)
            server.gate.set()
            expected = [{"a": key} for key in range(0, 10 * self.COUNT, 10)]
            assert records.result(PATIENCE_SECONDS) == expected


class TestAddresses:
    @pytest.mark.parametrize(
        ("name", "address"),
        [
            ("a b.bin", "a%20b.bin"),
            ("a b.bin", "a b.bin"),
            ("d/a+b.bin", "d/a+b.bin"),
            ("d//a.bin", "d//a.bin"),
            ("ü/[1].bin", "ü/[1].bin"),
            ("get?key=1&sign=%2F", "get?key=1&sign=%252F"),
        ],
    )
    def test_are_taken_as_they_are(self, server: Server, name: str, address: str) -> None:
        server.files[name] = b"hello"
        assert RemoteFile(server.url(address)).read(1, 3) == b"el"

    def test_that_may_only_be_got(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        server.files["a.bin"] = DATA
        monkeypatch.setattr(
            server.RequestHandlerClass, "do_HEAD", lambda self: self.send_error(403)
        )
        file = RemoteFile(server.url("a.bin"))
        assert file.size == len(DATA)
        assert file.read(5, 9) == DATA[5:9]


class TestForks:
    def test_a_forked_process_lists_and_reads(self, s3: str, server: Server) -> None:
        bucket = boto3.resource("s3").Bucket("forked")
        bucket.create()
        bucket.put_object(Key="d/a.bin", Body=b"hello")
        server.files["a.bin"] = DATA
        file, files = RemoteFile(server.url("a.bin")), OpenFiles()
        assert files.get("s3://forked/d/a.bin").read(0, 5) == b"hello"

        def reads() -> bool:
            (found,) = expand("s3://forked/d/*.bin")
            with pytest.raises(MissingFileError, match="there is no file"):
                RemoteFile("s3://forked/b.bin")
            return files.get(found).read(1, 3) == b"el" and spread(file) == EXPECTED

        assert true_in_a_fork(reads)
        bucket.objects.delete()

    def test_with_the_options_that_the_program_has_set(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.files["a.bin"] = DATA
        server.key = "secret"
        monkeypatch.setitem(fsspec.config.conf, "http", {"headers": {"X-Key": "secret"}})
        file = RemoteFile(server.url("a.bin"))
        assert true_in_a_fork(lambda: file.read(0, 10) == DATA[:10])


class TestWhoAsks:
    @pytest.fixture
    def nobody(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        return tmp_path

    def test_a_profile(self, nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "[mine]\naws_access_key_id = me\naws_secret_access_key = hidden\n"
        (nobody / "credentials").write_text(text)
        (nobody / "config").write_text("[profile mine]\nregion = eu-west-3\n")
        monkeypatch.setenv("AWS_PROFILE", "mine")
        config = aws.credentials_for("s3://bucket/a", None)
        assert config["region"] == "eu-west-3"
        assert config["credential_provider"]()["access_key_id"] == "me"
        monkeypatch.setenv("AWS_PROFILE", "nobody")
        with pytest.raises(FileError, match=r"'s3://bucket/a' may not be read: .*nobody"):
            aws.credentials_for("s3://bucket/a", None)

    def test_nobody_in_particular(self, nobody: Path) -> None:
        assert aws.credentials_for("s3://bucket/a", None) == {"skip_signature": True}
        with pytest.raises(FileError, match=r"no credentials were found\. Check"):
            aws.credentials_for("s3://bucket/a", False)

    def test_the_region_of_a_bucket(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(aws, "_ANYWHERE", server.url("").rstrip("/"))

        def moved(self: Any) -> None:
            self.send_response(301)
            self.send_header("x-amz-bucket-region", "eu-north-1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        monkeypatch.setattr(server.RequestHandlerClass, "do_HEAD", moved)
        assert aws.region_of("bucket") == "eu-north-1"
        server.server_close()
        assert aws.region_of("bucket") is None

    def test_options_of_fsspec(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        server.files["bucket/a.bin"] = b"hello"
        options = {"anon": True, "client_kwargs": {"endpoint_url": server.url("").rstrip("/")}}
        monkeypatch.setitem(fsspec.config.conf, "s3", options)
        assert RemoteFile("s3://bucket/a.bin").read(0, 5) == b"hello"
        # What only its own file system understands is left to that.
        monkeypatch.setitem(fsspec.config.conf, "s3", {**options, "version_aware": True})
        assert not stores.serves("s3://bucket/a.bin")


def test_stores_of_others(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server.has_dates = True
    server.files["bucket/a.bin"] = b"hello"
    key = f'{{"gcs_base_url": "{server.url("").rstrip("/")}", "disable_oauth": true, '
    key += '"client_email": "", "private_key": "", "private_key_id": ""}'
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", key)
    assert RemoteFile("gs://bucket/a.bin").read(1, 5) == b"ello"
    server.files["devstoreaccount1/bucket/a.bin"] = b"other"
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", server.url("").rstrip("/"))
    assert RemoteFile("az://bucket/a.bin").read(1, 5) == b"ther"
