"""Servers to read from, and a cache that belongs to the test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bushel.files import retry
from tests.files.server import Server, serve


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of pieces. Nothing is read from, or left in, the one of who runs the tests."""
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BUSHEL_CACHE_BYTES", raising=False)
    # The attempts count, not the time between them.
    monkeypatch.setattr(retry, "FIRST_WAIT_SECONDS", 0.001)
    return tmp_path / "cache" / f"remote-{os.geteuid()}"


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as server:
        yield server


@pytest.fixture(scope="session")
def _s3() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # It takes seconds, in each process that collects.

    moto = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def s3(_s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an S3 server; the environment says that it is the one to ask."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", _s3)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anybody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return _s3
