"""What the system refuses is said by its name, and nothing is left half-written or believed."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bushel
from bushel.files.local import OpenFiles
from bushel.sources import JsonLinesDataSource
from tests.patience import PATIENCE_SECONDS

PROGRAM = """
import gzip, json, logging, os, resource, sys, warnings

import bushel
from bushel.checkpoint.folders import encode, read_state, write_encoded
from bushel.sources import JsonLinesDataSource, ParquetDataSource

data, folder, limit = sys.argv[1:]
os.environ["BUSHEL_CACHE"] = os.path.join(folder, "cache")
logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="LOG %(message)s")
warnings.simplefilter("ignore")
if limit != "disk":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))


def index():
    source = JsonLinesDataSource(data + "/a.jsonl")
    assert [source[key]["x"] for key in (0, 999)] == [0, 999]

def unpack():
    JsonLinesDataSource(data + "/b.jsonl.gz")

def parts():
    source = ParquetDataSource(data + "/a.parquet", cache_bytes=1000)
    keys = [0, 400, 800, 0, 400, 800]
    assert [int(source[key]["x"]) for key in keys] == keys

def stream():
    numbers = bushel.MapDataset.range(5000).map(lambda x: str(x) * 20).to_iter_dataset()
    for _ in range(2):
        assert len(list(numbers.cache(folder + "/stream"))) == 5000

def compact():
    odd = bushel.MapDataset.range(9000).filter(lambda x: x % 2)
    for _ in range(2):
        assert len(odd.compact(cache=folder + "/compact")) == 4500

def checkpoint():
    write_encoded(folder, encode({"next_index": 3, "more": "x" * 20000}))

for step in (index, unpack, parts, stream, compact, checkpoint):
    print("STEP", step.__name__)
    try:
        step()
    except OSError as error:
        print("ERROR", error)
# A folder that is bounded keeps a lock.
left = [name for _, _, names in os.walk(folder) for name in names if name != ".lock"]
print("LEFT", [name for name in left if "fill" not in name])
"""


def run_limited(data: Path, folder: Path, limit: str) -> dict[str, str]:
    """What each step said, and what was left in the folder."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(data), str(folder), limit],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert not ran.returncode, ran.stderr
    said, left = ran.stdout.split("LEFT ")
    steps = (step.partition("\n") for step in said.split("STEP ")[1:])
    return {"LEFT": left.strip(), **{name: rest for name, _, rest in steps}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Files to read, in a folder in which nothing can be written."""
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("data")
    lines = "".join(f'{{"x": {x}}}\n' for x in range(1000))
    (folder / "a.jsonl").write_text(lines)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.table({"x": list(range(1000))}), folder / "a.parquet", row_group_size=100)
    yield folder


def check(said: dict[str, str], limit: str) -> None:
    for step in ("index", "unpack", "stream", "compact", "checkpoint"):
        assert limit in said[step], (step, said[step])
    # It is what was decoded already, kept for the next time: the documentation says when it is not.
    assert "ERROR" not in said["parts"]
    assert "ERROR" in said["unpack"] and "ERROR" in said["checkpoint"]
    assert [step for step in ("index", "stream", "compact") if "ERROR" in said[step]] == []
    assert said["LEFT"] == "[]"


@pytest.mark.parametrize("most", [0, 1000])
def test_a_limit_on_the_size_of_files(most: int, data: Path, tmp_path: Path) -> None:
    check(run_limited(data, tmp_path, str(most)), f"{most:,} bytes (`ulimit -f`)")


def test_a_disk_that_is_full(data: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "bushel-test", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("to mount a small disk is not permitted here")
    try:
        with pytest.raises(OSError), open(disk / "fill", "wb", 0) as file:
            while True:
                file.write(bytes(4096))
        said = run_limited(data, disk, "disk")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    said["index"] = said["index"] or "is full"  # The index is beside the file, on another disk.
    check(said, "is full")


def test_more_files_than_may_be_open(tmp_path: Path, few_open_files: int) -> None:
    paths = [tmp_path / f"{number:03d}.jsonl" for number in range(2 * few_open_files)]
    for number, path in enumerate(paths):
        path.write_text(f'{{"x": {number}}}\n')
    # Each keeps a share of what may be open.
    sources = [JsonLinesDataSource(list(map(str, paths))) for _ in range(6)]
    wanted = list(range(len(paths)))
    for source in sources:
        assert [record["x"] for record in source.__getitems__(wanted)] == wanted


def test_no_file_can_be_opened_any_more(tmp_path: Path, few_open_files: int) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"hello")
    held: list[int] = []
    try:
        with pytest.raises(OSError):
            while True:
                held.append(os.open(path, os.O_RDONLY))
        text = rf"a.txt' cannot be read: this process may have {few_open_files} files open \(`uli"
        with pytest.raises(bushel.errors.FileError, match=text):
            OpenFiles().get(str(path))
    finally:
        for descriptor in held:
            os.close(descriptor)


@pytest.fixture
def few_open_files() -> Iterator[int]:
    """Lets this process have few more files open than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(map(int, os.listdir("/proc/self/fd"))) + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
