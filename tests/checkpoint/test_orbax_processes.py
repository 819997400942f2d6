"""Saving while processes die, in many processes, and into folders of other machines."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import orbax.checkpoint as ocp
import pytest
from etils import epath

from bushel import MapDataset
from bushel.checkpoint import CheckpointHandler
from bushel.errors import StateError
from tests.checkpoint.managers import restore
from tests.checkpoint.programs import SOURCES, run
from tests.patience import PATIENCE_SECONDS
from tests.thorough import THOROUGH, slow

_KILLED = """
import os, signal, sys
import orbax.checkpoint as ocp
from bushel import MapDataset
from bushel.checkpoint import CheckpointSave

ON_FILES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}

def save(folder, killed_at):
    events = 0

    def count(event, _):
        nonlocal events
        if event in ON_FILES:
            events += 1
            if events == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    iterator = iter(MapDataset.range(100).shuffle(seed=1))
    with ocp.CheckpointManager(folder) as manager:
        for step in range(1, 5):
            next(iterator)
            manager.save(step, args=ocp.args.Composite(data=CheckpointSave(iterator)))
            os.write(1, f"{killed_at} {step}\\n".encode())

for killed_at in range(1, 1000, EVERY):
    child = os.fork()
    if not child:
        save(f"{sys.argv[1]}/{killed_at}", killed_at)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


def test_killed_at_any_file_operation(tmp_path: Path) -> None:
    """SIGKILL at every thirteenth file operation of four saves, whichever thread is at it.

    Every step that Orbax shows can be restored, and no more is lost than what was going on.
    """
    every = "1" if THOROUGH else "13"
    lines = run(_KILLED.replace("EVERY", every), tmp_path).splitlines()
    begun = {int(moment): int(step) for moment, step in map(str.split, lines)}
    ds = MapDataset.range(100).shuffle(seed=1)
    for moment in sorted(map(int, os.listdir(tmp_path))):
        with ocp.CheckpointManager(tmp_path / str(moment)) as manager:
            steps = manager.all_steps()
            # Orbax begins with a step when it is through with the one before.
            assert set(steps) >= set(range(1, begun.get(moment, 0)))
            for step in steps:
                with restore(manager, step, iter(ds)) as iterator:
                    assert next(iterator) == ds[step]
    last = max(begun)
    assert last > 60, "hardly ever killed"
    assert begun[last] == 4 and steps == [1, 2, 3, 4]


# Many processes.

_BEGINNING = """
import sys
index, count, address, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
import jax
jax.distributed.initialize(address, count, index)
from bushel import MapDataset

ds = MapDataset.range(40)[index::count]
iterator = iter(ds)
for _ in range(3 + index):
    next(iterator)
"""
# In jobs of their own: where processes save by both, one may wait for the wrong one of them.
_BY_THE_MANAGER = """
import orbax.checkpoint as ocp
from bushel.checkpoint import CheckpointRestore, CheckpointSave

with ocp.CheckpointManager(folder) as manager:
    manager.save(1, args=ocp.args.Composite(data=CheckpointSave(iterator)))
    manager.wait_until_finished()
    expected = next(iterator)
    manager.restore(1, args=ocp.args.Composite(data=CheckpointRestore(iterator)))
    assert next(iterator) == expected
"""
_BY_THE_NEWER_WAY = """
import orbax.checkpoint.experimental.v1 as ocp_v1

ocp_v1.save_checkpointables(folder + "/1", {"data": iterator})
expected = next(iterator)
ocp_v1.load_checkpointables(folder + "/1", {"data": iterator})
assert next(iterator) == expected
"""


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(_BY_THE_MANAGER, id="manager"),
        pytest.param(_BY_THE_NEWER_WAY, id="newer", marks=slow),
    ],
)
def test_two_processes(way: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    environment = {**os.environ, "PYTHONPATH": SOURCES, "JAX_PLATFORMS": "cpu"}
    processes = []
    for index in range(2):
        arguments = [_BEGINNING + way, str(index), "2", address, str(tmp_path / "saved")]
        # Not into pipes: the one that is not read could stop the other.
        with (tmp_path / f"errors {index}").open("w") as errors:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", *arguments],
                    env=environment,
                    stdout=errors,
                    stderr=errors,
                )
            )
    try:
        codes = [process.wait(PATIENCE_SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shown = "\n".join((tmp_path / f"errors {index}").read_text() for index in range(2))
        print(shown)
    assert codes == [0, 0], shown
    folder = tmp_path / "saved" / "1" / "data"
    found = sorted(path.name for path in folder.glob("*.json"))
    assert found == ["process_0-of-2.json", "process_1-of-2.json"]
    with pytest.raises(StateError, match=r"saved by 2 processes .*, and there is 1 now"):
        CheckpointHandler().restore(epath.Path(folder), iter(MapDataset.range(20)))


# Folders that are not on this machine.

_REMOTE = """
import fsspec
from etils import epath
from fsspec.implementations.memory import MemoryFileSystem
from bushel import MapDataset
from bushel.checkpoint import CheckpointHandler

class Bucket(MemoryFileSystem):
    protocol = ("s3",)

fsspec.register_implementation("s3", Bucket, clobber=True)
folder = epath.Path("s3://bucket/step/data")
folder.mkdir(parents=True)
iterator = iter(MapDataset.range(30).shuffle(seed=2))
next(iterator)
handler = CheckpointHandler()
handler.save(folder, iterator)
print(*[path.name for path in folder.iterdir()])
again = handler.restore(folder, iter(MapDataset.range(30).shuffle(seed=2)))
assert list(again) == list(iterator)
try:
    handler.restore(epath.Path("s3://bucket/step"), again)
except ValueError as error:
    print(error)
"""


def test_a_folder_in_an_object_store(tmp_path: Path) -> None:
    printed = run(_REMOTE, EPATH_USE_TF="0").splitlines()
    assert printed == [
        "process_0-of-1.json",
        "s3://bucket/step has no process_0-of-1.json, so there is no state of an iterator. "
        "It has data.",
    ]
