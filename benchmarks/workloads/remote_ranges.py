"""Ranges of a file on a web server and in an object store: as fast as obstore reads them by hand?

The server is nginx on this machine, as fast as a server can be here, so that what is measured is
the client. No cache: every range is a request, or a part of one. By hand is one call of obstore for
each batch, which has no look at whether the file is still the same; bushel has.
"""

import atexit
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

Batch = NDArray[np.uint8]

BATCH_SIZE = 256
SEED = 42
STARTING_SECONDS = 10.0

CONFIGURATION = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000000;
  client_body_temp_path {folder}/t; proxy_temp_path {folder}/t; fastcgi_temp_path {folder}/t;
  uwsgi_temp_path {folder}/t; scgi_temp_path {folder}/t;
  server {{ listen 127.0.0.1:{port}; root {folder}/files; }}
}}
"""


def nginx() -> str | None:
    return shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


@cache
def server() -> tuple[Path, str]:
    """Starts nginx, which ends with this process; gives the folder of its files and its address."""
    program = nginx()
    assert program is not None
    made = TemporaryDirectory(prefix="bushel-benchmarks-")
    folder = Path(made.name)
    folder.chmod(0o755)  # Its worker is nobody.
    (folder / "files" / "bucket").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "nginx.conf").write_text(CONFIGURATION.format(folder=folder, port=port))
    process = subprocess.Popen(
        [program, "-c", str(folder / "nginx.conf"), "-p", str(folder)], stderr=subprocess.DEVNULL
    )
    atexit.register(made.cleanup)
    atexit.register(process.wait)
    atexit.register(process.terminate)
    wait_for(port, process)
    address = f"http://127.0.0.1:{port}"
    os.environ |= {"BUSHEL_CACHE": made.name, "BUSHEL_CACHE_BYTES": "0"}
    os.environ |= {"AWS_ENDPOINT_URL": address, "AWS_EC2_METADATA_DISABLED": "true"}
    os.environ["FSSPEC_S3_ANON"] = "true"  # It knows no signatures.
    return folder / "files" / "bucket", address


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + STARTING_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise RuntimeError("nginx does not start")


@cache
def file_of(size: int) -> str:
    """The address of a file of so many bytes."""
    folder, address = server()
    (folder / str(size)).write_bytes(np.random.default_rng(size).bytes(size))
    return f"{address}/bucket/{size}"


@cache
def store() -> Any:
    from obstore.store import HTTPStore

    return HTTPStore(server()[1], client_options={"allow_http": True})


@cache
def opened(scheme: str, size: int) -> Any:
    from bushel.files.local import open_file

    address = file_of(size)
    return open_file(address if scheme == "http" else f"s3://bucket/{size}")


def by_hand(size: int, starts: Any, length: int) -> list[Any]:
    import obstore

    file_of(size)
    lengths = [length] * len(starts)
    key = f"bucket/{size}"
    found: list[Any] = obstore.get_ranges(
        store(), key, starts=starts.tolist(), lengths=lengths, coalesce=0
    )
    return found


def by_bushel(scheme: str, size: int, starts: Any, length: int) -> list[Any]:
    found: list[Any] = opened(scheme, size).read_many(starts, starts + length)
    return found


def shuffled(read: Any, length: int, n: int) -> Iterator[Batch]:
    order = np.random.default_rng(SEED).permutation(n)
    for first in range(0, n, BATCH_SIZE):
        records = read(n * length, order[first : first + BATCH_SIZE] * length, length)
        yield np.frombuffer(b"".join(records), np.uint8).reshape(-1, length)


def in_turn(read: Any, length: int, n: int) -> Iterator[Batch]:
    for number in range(n):
        (record,) = read(n * length, np.array([number * length]), length)
        yield np.frombuffer(record, np.uint8).reshape(-1, length)


def workload(name: str, title: str, gauge: Throughput, epoch: Any, length: int) -> Workload:
    def hand(n: int) -> Iterator[Batch]:
        batches: Iterator[Batch] = epoch(by_hand, length, n)
        return batches

    def http(lib: ModuleType, n: int) -> Iterator[Batch]:
        batches: Iterator[Batch] = epoch(partial(by_bushel, "http"), length, n)
        return batches

    def s3(lib: ModuleType, n: int) -> Iterator[Batch]:
        batches: Iterator[Batch] = epoch(partial(by_bushel, "s3"), length, n)
        return batches

    forms = (
        Form("http://", http, Goal(0.8, "hand"), grain_agrees=None),
        Form("s3://", s3, Goal(0.8, "hand"), grain_agrees=None),
    )
    return Workload(name=name, title=title, gauge=gauge, hand=hand, forms=forms)


SHUFFLED = [
    workload(
        f"remote_shuffled_{length // 1000}k",
        f"remote ranges of {length // 1000} kB, shuffled",
        Throughput(records, BATCH_SIZE, proof_records=BATCH_SIZE),
        shuffled,
        length,
    )
    for length, records in ((1_000, 80 * BATCH_SIZE), (10_000, 40 * BATCH_SIZE))
]
IN_TURN = workload(
    "remote_in_turn",
    "remote file, 1 MB in turn",
    Throughput(100, 1, proof_records=4, record_bytes=1 << 20),
    in_turn,
    1 << 20,
)

# Without a server there is nothing to measure. Python's own would be what is measured.
WORKLOADS = [*SHUFFLED, IN_TURN] if nginx() else []
if not WORKLOADS:
    print(
        "remote_shuffled and remote_in_turn are left out: they need nginx "
        "(`apt-get install nginx-light`)",
        file=sys.stderr,
    )
