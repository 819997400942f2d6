"""Kills at every step of a write: what was whole stays, nothing half is believed."""

import hashlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset
from bushel.errors import BushelError
from tests.patience import PATIENCE_SECONDS
from tests.thorough import THOROUGH
from tests.write import parts

# What changes a folder: before and after each of these calls, the process is killed once. (After
# one and before the next a folder looks the same: one of the two is for `make test-all`.)
STEPS = ("replace", "link", "unlink", "mkdir", "rmdir")
EACH = 1 if THOROUGH else 2


def dataset() -> MapDataset[Any]:
    return MapDataset.range(30).shuffle(seed=1).map(parts.record)


def stream() -> Any:
    return dataset().to_iter_dataset(bushel.ReadOptions(0, 0)).filter(parts.odd)


def write_array(folder: Path, overwrite: bool = False) -> None:
    dataset().write(folder / "a-*.jsonl", shards=3, workers=0, overwrite=overwrite)


def write_stream(folder: Path, overwrite: bool = False) -> None:
    stream().write(folder / "a-*.jsonl", shard_records=5, workers=0, overwrite=overwrite)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "bushel-index" not in path.name
    }


def killed_at(number: int, work: Any) -> bool:
    """Does something in a child that is killed at a step; False where it had fewer steps."""
    child = os.fork()
    if child == 0:
        count = itertools.count()

        def step() -> None:
            if next(count) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def around(call: Any) -> Any:
            def called(*args: Any, **kwargs: Any) -> Any:
                step()
                result = call(*args, **kwargs)
                step()
                return result

            return called

        status = 1
        try:
            for name in STEPS:
                setattr(os, name, around(getattr(os, name)))
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


@pytest.mark.parametrize("write", [write_array, write_stream])
def test_a_kill_at_every_step(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    for number in itertools.count(0, EACH):
        folder = tmp_path / str(number)
        if not killed_at(number, lambda folder=folder: write(folder)):
            break
        # What is there is whole.
        shards = {path.name: path.stat().st_ino for path in folder.glob("a-*.jsonl")}
        for name in shards:
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected[name]
        try:
            found = bushel.open(folder)
        except BushelError as error:
            assert (
                "unfinished" in str(error) or "there is no" in str(error) or "empty" in str(error)
            )
        else:
            assert len(found) == sum(shard.records for shard in found.manifest.shards)
        write(folder)
        assert contents(folder) == expected
        # A shard that was done is not written again.
        noted = {path.name for path in folder.glob("a-*.jsonl") if path.name in shards}
        assert all((folder / name).stat().st_ino == shards[name] for name in noted)
    assert number > 20


def test_a_kill_at_every_step_of_overwriting(tmp_path: Path) -> None:
    """Nobody takes shards of two pipelines for one dataset."""
    write_stream(tmp_path / "other")
    write_array(tmp_path / "whole")
    old, expected = contents(tmp_path / "other"), contents(tmp_path / "whole")
    for number in itertools.count(0, EACH):
        folder = tmp_path / str(number)
        write_stream(folder)
        if not killed_at(number, lambda folder=folder: write_array(folder, overwrite=True)):
            break
        try:
            found = bushel.open(folder)
        except BushelError as error:
            assert str(folder) in str(error)
        else:
            there = contents(folder).items()
            assert found.manifest.digest and (there >= old.items() or there >= expected.items())
        write_array(folder, overwrite=True)
        assert contents(folder) == expected
    assert number > 20


_PROGRAM = """
import sys
from tests.write.test_kills import dataset
dataset().repeat(40).write(sys.argv[1], shards=40, workers=2)
"""


@pytest.mark.skipif(not THOROUGH, reason="kills at every step are tried; this starts programs")
def test_kills_at_any_time(tmp_path: Path) -> None:
    """Of the program, with workers: as often as it takes."""
    to = f"{tmp_path}/out/a-*.arrow"
    dataset().repeat(40).write(tmp_path / "whole" / "a-*.arrow", shards=40, workers=0)
    for kills in itertools.count():
        program = subprocess.Popen([sys.executable, "-c", _PROGRAM, to], stderr=subprocess.PIPE)
        seen = len(list(tmp_path.glob("out/a-*.arrow")))
        deadline = time.monotonic() + PATIENCE_SECONDS
        # Killed when it has done some more, so that it comes to an end however slow it is.
        while kills < 3 and program.poll() is None:
            assert time.monotonic() < deadline
            if len(list(tmp_path.glob("out/a-*.arrow"))) >= seen + 5 + kills:
                program.kill()
            time.sleep(0.001)
        _, said = program.communicate(timeout=PATIENCE_SECONDS)
        if program.returncode == 0:
            break
        assert program.returncode == -signal.SIGKILL, said
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
