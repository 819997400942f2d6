"""Whoever is killed while a folder takes the place of another leaves a whole one, at any step."""

import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from bushel.files.latest_folder import LatestFolder

# What changes a file system, as Python tells it.
STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
PARTS = ("weights", "state")


def write(folder: Path, name: str, contents: str) -> None:
    with LatestFolder(folder, "checkpoint-").written(name) as new:
        for part in PARTS:
            (new / part).write_text(contents)


def latest(folder: Path) -> list[str]:
    found = LatestFolder(folder, "checkpoint-").find()
    assert found is not None
    return [(found / part).read_text() for part in PARTS]


def killed_at(step: int, folder: Path, name: str) -> bool:
    """Writes in another process, which is killed before a step; whether that came to it."""
    child = os.fork()
    if not child:
        steps = itertools.count()

        def look(event: str, _: Any) -> None:
            if event in STEPS and next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(look)
        write(folder, name, "new")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


# The one that is there, and the one that is written.
NAMES = {
    "a later one": ("checkpoint-1-4", "checkpoint-1-8"),
    "the same again": ("checkpoint-1-4", "checkpoint-1-4"),
    "one of a training that began anew": ("checkpoint-3-4", "checkpoint-1-4"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_kill_at_any_step_leaves_a_whole_one(kind: str, tmp_path: Path) -> None:
    there, name = NAMES[kind]
    found = []
    for step in itertools.count():
        folder = tmp_path / str(step)
        write(folder, there, "old")
        was_killed = killed_at(step, folder, name)
        found.append(latest(folder))
        # Whatever it left is in nobody's way.
        write(folder, name, "next")
        assert latest(folder) == ["next"] * 2 and len(list(folder.iterdir())) == 1
        if not was_killed:
            break
    # The old one first, from some step on the new one, and never a bit of each.
    whole = [["old"] * 2, ["new"] * 2]
    assert [one for one, _ in itertools.groupby(found)] == whole
    assert len(found) > 8


def test_a_failure_leaves_the_previous_one(tmp_path: Path) -> None:
    write(tmp_path, "checkpoint-1", "old")
    with (
        pytest.raises(OSError, match="full"),
        LatestFolder(tmp_path, "checkpoint-").written("checkpoint-1") as new,
    ):
        (new / "weights").write_text("new")
        raise OSError("full")
    assert latest(tmp_path) == ["old", "old"]


def test_the_same_name_many_times(tmp_path: Path) -> None:
    for time in range(12):
        write(tmp_path, "checkpoint-1", str(time))
        assert latest(tmp_path) == [str(time)] * 2
