"""The cache on the disk, filled by many processes at once, some of which are killed."""

import os
import signal
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bushel.errors import FileError
from bushel.files.remote import RemoteFile
from bushel.files.remote_cache import PIECE, Cache
from tests.files.server import Server
from tests.files.test_remote_cache import DATA, file, kept, missing, piece, read, taken
from tests.patience import PATIENCE_SECONDS

__all__ = ["file"]


WRITER = """
import os, sys
import numpy as np
from bushel.files import remote_cache as module
from bushel.files import evict
from bushel.files.remote_cache import PIECE, Cache

data = np.random.default_rng(0).bytes(8 * PIECE - 1000)
kept = Cache(sys.argv[1], 10**9).keep("a", "stamp", len(data))
kept.put(0, data[:PIECE])
write, count = os.pwrite, 0

def stop_in_the_middle(descriptor, data, at):
    global count
    count += 1
    if count == int(sys.argv[2]):
        write(descriptor, bytes(data)[: len(data) // 2], at)
        print("in the middle", flush=True)
        sys.stdin.read()
    return write(descriptor, data, at)

os.pwrite = stop_in_the_middle
for piece in (1, 2):
    kept.put(piece, data[piece * PIECE : (piece + 1) * PIECE])
"""


class TestManyProcesses:
    # For each of two pieces it writes what there is, the piece, and the checksum.
    @pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
    def test_a_process_that_is_killed_while_it_writes(self, tmp_path: Path, number: int) -> None:
        folder = str(tmp_path / "c")
        half = 1 if number <= 3 else 2
        absent = [1, 2][half - 1 :]
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, folder, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            try:
                assert writer.stdout is not None
                assert writer.stdout.readline() == "in the middle\n"
                one = kept(Cache(folder, 10**9))
                assert missing(one, 0, 1, 2) == absent
            finally:
                writer.send_signal(signal.SIGKILL)
            assert writer.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        # The lock that it held is free, and the piece is written anew.
        assert missing(one, 0, 1, 2) == absent
        assert one.put(half, piece(half))
        other = kept(Cache(folder, 10**9))
        assert half not in missing(other, 0, 1, 2)
        assert other.read(0, 10) == DATA[:10]
        assert other.read(half * PIECE, (half + 1) * PIECE) == piece(half)

    def test_processes_share_a_small_cache_and_stay_below_the_limit(
        self, server: Server, cache: Path
    ) -> None:
        most = 6 * PIECE * 2
        names = ["a.bin", "b.bin", "c.bin"]
        for name in names:
            server.files[name] = DATA
        code = (
            "import sys, zlib, numpy as np; from bushel.files.local import open_file\n"
            "rng = np.random.default_rng(int(sys.argv[1]))\n"
            "for round in range(6):\n"
            "    file = open_file(sys.argv[2 + int(rng.integers(3))])\n"
            "    starts = rng.integers(0, file.size - 100, 12)\n"
            "    for start, data in zip(starts, file.read_many(starts, starts + 100)):\n"
            "        print(start, zlib.crc32(data))\n"
        )
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(seed), *map(server.url, names)],
                env={**os.environ, "BUSHEL_CACHE_BYTES": str(most)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in range(3)
        ]
        try:
            for reader in readers:
                out, _ = reader.communicate(timeout=PATIENCE_SECONDS)
                assert reader.returncode == 0
                lines = [tuple(map(int, line.split())) for line in out.splitlines()]
                assert len(lines) == 72
                for start, checksum in lines:
                    assert zlib.crc32(DATA[start : start + 100]) == checksum
        finally:
            for reader in readers:
                reader.kill()
                reader.communicate()
        assert 0 < taken(cache) <= most

    def test_threads_that_want_the_same_piece_ask_once(
        self, server: Server, file: RemoteFile
    ) -> None:
        server.gate.clear()
        ready = threading.Barrier(5)

        def wanted(_: int) -> bool:
            ready.wait(PATIENCE_SECONDS)
            return read(file, 1, 6)

        with ThreadPoolExecutor(4) as pool:
            answers = pool.map(wanted, range(4))
            ready.wait(PATIENCE_SECONDS)
            for _ in range(2):
                assert server.waiting.acquire(timeout=PATIENCE_SECONDS)
            server.gate.set()
            assert all(answers)
        assert len(server.asked) == 2

    def test_who_waited_for_one_that_failed_tries_it(
        self, server: Server, file: RemoteFile
    ) -> None:
        server.gate.clear()
        server.faults.append("403")
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(read, file, 1)
            assert server.waiting.acquire(timeout=PATIENCE_SECONDS)
            second = pool.submit(read, file, 1)
            server.gate.set()
            with pytest.raises(FileError, match="may not be read"):
                first.result(PATIENCE_SECONDS)
            assert second.result(PATIENCE_SECONDS)
