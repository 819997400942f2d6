"""Records of a remote file that is in the cache, shuffled: as fast as those of a file that is here?

By hand is the same work on a local file, through the same calls.
"""

import atexit
import os
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

Batch = NDArray[np.uint8]

BATCH_SIZE = 256
RECORDS = 80 * BATCH_SIZE
RECORD_BYTES = 1000
SEED = 42


@cache
def content(n: int) -> bytes:
    return np.random.default_rng(n).bytes(n * RECORD_BYTES)


class Handler(BaseHTTPRequestHandler):
    """Serves `/n`, the content of n records, by ranges."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.answer(content(int(self.path[1:])), b"")

    def do_GET(self) -> None:
        data = content(int(self.path[1:]))
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        part = data[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.answer(part, part)

    def answer(self, counted: bytes, sent: bytes) -> None:
        self.send_header("Content-Length", str(len(counted)))
        self.send_header("ETag", f'"{self.path[1:]}"')
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: Any) -> None:
        return


@cache
def folder() -> Path:
    """A folder that goes with this process, for the local file and for the cache."""
    folder = TemporaryDirectory(prefix="bushel-benchmarks-")
    atexit.register(folder.cleanup)
    os.environ["BUSHEL_CACHE"] = folder.name
    return Path(folder.name)


@cache
def here(n: int) -> Any:
    from bushel.files.local import open_file

    path = folder() / f"records-{n}"
    path.write_bytes(content(n))
    return open_file(str(path))


@cache
def far_away(n: int) -> Any:
    """Opens the file and reads it once: the first pass is the server's."""
    from bushel.files.local import open_file

    folder()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            file = open_file(f"http://127.0.0.1:{server.server_address[1]}/{n}")
            file.read(0, file.size)
        finally:
            server.shutdown()
            thread.join()
    return file


def batches(file: Any, n: int) -> Iterator[Batch]:
    order = np.random.default_rng(SEED).permutation(n)
    for first in range(0, n, BATCH_SIZE):
        starts = order[first : first + BATCH_SIZE] * RECORD_BYTES
        records = file.read_many(starts, starts + RECORD_BYTES)
        yield np.frombuffer(b"".join(records), np.uint8).reshape(-1, RECORD_BYTES)


def local(n: int) -> Iterator[Batch]:
    return batches(here(n), n)


def cached(lib: ModuleType, n: int) -> Iterator[Batch]:
    return batches(far_away(n), n)


WORKLOAD = Workload(
    name="remote_cache",
    title="second pass, remote file",
    gauge=Throughput(RECORDS, BATCH_SIZE),
    hand=local,
    # At most 1.2 times as long.
    forms=(Form("through the cache", cached, Goal(1 / 1.2, "hand"), grain_agrees=None),),
)
