"""Pipelines written by a real Ray cluster: whatever ends, the files are those of one process."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import bushel
from tests.cluster.conftest import ON_A_CLUSTER, Nodes
from tests.cluster.seen import (
    clusters,
    kill_actor,
    kill_process,
    node_with_work,
    started,
)
from tests.workers.processes import wait_until

pytestmark = ON_A_CLUSTER


SHARDS = 12


def squared(x: int) -> dict[str, int]:
    time.sleep(0.02)
    return {"x": x, "square": x * x}


def squares() -> bushel.MapDataset[Any]:
    return bushel.MapDataset.range(600).seed(4).shuffle().map(squared)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here")
    squares().write(folder / "a-*.jsonl", shards=SHARDS, workers=2)
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _done(folder: Path) -> int:
    return len(list(folder.glob("*.jsonl")))


@pytest.mark.parametrize("what", ["nothing", "actor", "process", "raylet", "node", "all"])
def test_written_by_a_cluster(what: str, nodes: Nodes, here: Path, tmp_path: Path) -> None:
    happened: list[str] = []

    def blow() -> None:
        # In the middle of it: some shards are there, and others are not.
        wait_until(lambda: _done(tmp_path) >= 3)
        cluster = clusters[-1]
        if what in ("actor", "all"):
            kill_actor(cluster)
        if what in ("process", "all"):
            kill_process(cluster)
        if what in ("raylet", "all"):
            os.kill(Nodes.raylet(node_with_work(cluster, nodes)), signal.SIGKILL)
        if what == "node":
            nodes.remove(node_with_work(cluster, nodes))
        happened.append(f"{what} at {_done(tmp_path)}")

    thread = threading.Thread(target=blow)
    if what != "nothing":
        thread.start()
    try:
        manifest = squares().write(
            tmp_path / "a-*.jsonl", shards=SHARDS, workers=bushel.RayOptions(num_workers=3)
        )
    finally:
        if what != "nothing":
            thread.join()
    assert manifest.records == 600
    assert all(int(each.split()[-1]) < SHARDS for each in happened), happened
    assert _files(tmp_path) == _files(here)


def test_a_killed_program_goes_on_where_it_was(here: Path, tmp_path: Path) -> None:
    program = started(f"""
        import bushel
        from tests.cluster.test_write_on_ray import SHARDS, squares
        options = bushel.RayOptions(num_workers=2)
        squares().write({str(tmp_path)!r} + "/a-*.jsonl", shards=SHARDS, workers=options)
    """)
    wait_until(lambda: _done(tmp_path) >= 3 or program.poll() is not None)
    program.kill()
    _, errors = program.communicate()
    there = {path: path.stat().st_ino for path in tmp_path.glob("*.jsonl")}
    assert 3 <= len(there) < SHARDS, errors
    squares().write(tmp_path / "a-*.jsonl", shards=SHARDS, workers=bushel.RayOptions(num_workers=3))
    assert {path: path.stat().st_ino for path in there} == there
    assert _files(tmp_path) == _files(here)


def test_a_stream_written_by_a_cluster(tmp_path: Path) -> None:
    def stream() -> bushel.IterDataset[Any]:
        return squares().to_iter_dataset().filter(lambda row: row["x"] % 3 > 0)

    there, alone = tmp_path / "there", tmp_path / "alone"
    options = bushel.RayOptions(num_workers=2)
    stream().write(there / "a-*.jsonl", shard_records=90, workers=options)
    stream().write(alone / "a-*.jsonl", shard_records=90, workers=0)
    assert _files(there) == _files(alone) and _done(there) == 5


def test_as_many_workers_as_there_is_room_for(here: Path, tmp_path: Path) -> None:
    options = bushel.RayOptions(num_workers="auto")
    squares().write(tmp_path / "a-*.jsonl", shards=SHARDS, workers=options)
    assert _files(tmp_path) == _files(here)
