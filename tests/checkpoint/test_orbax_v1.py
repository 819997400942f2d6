"""Iterators as checkpointables of Orbax's newer interface, which calls their `save` and `load`."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grain
import numpy as np
import orbax.checkpoint as ocp_v0
import orbax.checkpoint.experimental.v1 as ocp
import pytest

import bushel
from bushel.checkpoint import CheckpointHandler
from bushel.checkpoint.folders import decode
from bushel.errors import StateError
from tests.checkpoint.managers import MODEL, restore, save
from tests.checkpoint.pipelines import (
    MAKERS,
    Counter,
    Numbers,
    ahead,
    loader,
    mapped,
    rest,
    streamed,
)

inline = pytest.mark.parametrize("make", [loader, mapped, streamed])
every_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@inline
def test_it_is_a_checkpointable(make: Any) -> None:
    iterator = iter(make())
    assert isinstance(iterator, ocp.StatefulCheckpointable)
    iterator.close()


@inline
def test_saved_with_a_model(make: Any, tmp_path: Path) -> None:
    iterator = ahead(iter(make()), 3)
    ocp.save_checkpointables(tmp_path / "one", {"model": MODEL, "data": iterator})
    expected = rest(iterator)
    again = iter(make())
    loaded = ocp.load_checkpointables(tmp_path / "one", {"model": MODEL, "data": again})
    assert loaded["data"] is again
    assert loaded["model"]["weights"].tolist() == [0, 1, 2]
    assert rest(again) == expected


@every_kind
def test_saved_in_the_background(make: Any, tmp_path: Path) -> None:
    iterator = ahead(iter(make()), 3)
    saving = ocp.save_checkpointables_async(tmp_path / "one", {"data": iterator})
    expected = rest(iterator)
    saving.result()
    again = iter(make())
    ocp.load_checkpointables(tmp_path / "one", {"data": again})
    assert rest(again) == expected


def test_the_state_is_that_of_the_moment_of_saving(tmp_path: Path) -> None:
    iterator = Counter()
    for step in range(1, 6):
        next(iterator)
        saving = ocp.save_checkpointables_async(tmp_path / str(step), {"data": iterator})
        ahead(iterator, 100)
        saving.result()
        again = Counter()
        ocp.load_checkpointables(tmp_path / str(step), {"data": again})
        last = (step - 1) * 101 + 1
        assert again.state == {"count": last, "seen": list(range(last + 1))}


@pytest.mark.parametrize("make", [loader, mapped])
def test_a_checkpointer_of_steps(make: Any, tmp_path: Path) -> None:
    everything = rest(iter(make()))
    policy = ocp.training.preservation_policies.LatestN(3)
    iterator = iter(make())
    with ocp.training.Checkpointer(tmp_path, preservation_policy=policy) as checkpointer:
        for step in range(1, 6):
            next(iterator)
            checkpointables = {"model": MODEL, "data": iterator}
            if step % 2:
                assert checkpointer.save_checkpointables(step, checkpointables)
            else:
                saving = checkpointer.save_checkpointables_async(step, checkpointables)
                saving.result()
    iterator.close()
    with ocp.training.Checkpointer(tmp_path) as checkpointer:
        assert [checkpoint.step for checkpoint in checkpointer.checkpoints] == [3, 4, 5]
        for step in (4, 3):
            again = iter(make())
            checkpointer.load_checkpointables(step, {"data": again})
            assert rest(again) == everything[step:]
        again = iter(make())
        checkpointer.load_checkpointables(None, {"data": again})
        assert rest(again) == everything[5:]
        again = iter(make())
        with pytest.raises(Exception, match="No checkpoint found at step 9"):
            checkpointer.load_checkpointables(9, {"data": again})
        assert rest(again) == everything


def test_nothing_to_load_into(tmp_path: Path) -> None:
    ocp.save_checkpointables(tmp_path / "one", {"data": iter(mapped())})
    with pytest.raises(ValueError, match="you must pass an instance"):
        ocp.load_checkpointables(tmp_path / "one")


# Beside the older interface, and Grain.


@pytest.mark.parametrize("make", [loader, mapped])
def test_from_the_older_interface(make: Any, tmp_path: Path) -> None:
    iterator = ahead(iter(make()), 2)
    with ocp_v0.CheckpointManager(tmp_path) as manager:
        save(manager, 1, iterator)
    again = iter(make())
    ocp.load_checkpointables(tmp_path / "1", {"data": again})
    assert rest(again) == rest(iterator)


@pytest.mark.parametrize("make", [loader, mapped])
def test_to_the_older_interface(make: Any, tmp_path: Path) -> None:
    iterator = ahead(iter(make()), 2)
    with ocp.training.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save_checkpointables(1, {"data": iterator})
    with ocp_v0.CheckpointManager(tmp_path) as manager:
        again = restore(manager, 1, iter(make()))
    assert rest(again) == rest(iterator)


def _loader(lib: Any) -> Any:
    sampler = lib.samplers.IndexSampler(40, shuffle=True, seed=3, num_epochs=2)
    return lib.DataLoader(data_source=Numbers(), sampler=sampler)


def _dataset(lib: Any) -> Any:
    return lib.MapDataset.range(40).shuffle(seed=3).to_iter_dataset().batch(2)


@pytest.mark.parametrize("make", [_loader, _dataset])
def test_the_same_as_grain(make: Callable[[Any], Any], tmp_path: Path) -> None:
    """One program in both libraries: the same files, and either's are read here."""
    rests, files = [], []
    for lib in (grain, bushel):
        folder = tmp_path / lib.__name__
        iterator = ahead(iter(make(lib)), 5)
        ocp.save_checkpointables(folder, {"data": iterator})
        rests.append([np.asarray(element).tolist() for element in iterator])
        files.append({str(path.relative_to(folder)) for path in folder.rglob("*")})
        again = iter(make(bushel))
        ocp.load_checkpointables(folder, {"data": again})
        rests.append(rest(again))
    assert rests[0] and rests == rests[:1] * 4
    assert files[0] == files[1]


# What is refused.


def test_a_changed_pipeline(tmp_path: Path) -> None:
    ocp.save_checkpointables(tmp_path / "loader", {"data": iter(loader())})
    ocp.save_checkpointables(tmp_path / "map", {"data": iter(mapped())})
    changed = ahead(iter(loader(seed=4)), 1)
    with pytest.raises(StateError, match="another sampler: seed was 3 and is 4 now"):
        ocp.load_checkpointables(tmp_path / "loader", {"data": changed})
    assert rest(changed) == rest(ahead(iter(loader(seed=4)), 1))
    with pytest.raises(StateError, match=r"was `batch\(3\)` and is `batch\(5\)` now"):
        ocp.load_checkpointables(tmp_path / "map", {"data": iter(mapped(size=5))})


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    iterator = iter(mapped())
    ocp.save_checkpointables(tmp_path / "one", {"data": iterator})
    path = tmp_path / "one" / "data" / "process_0-of-1.json"
    path.write_text(path.read_text()[:-5])
    with pytest.raises(StateError, match="damaged, or no JSON"):
        ocp.load_checkpointables(tmp_path / "one", {"data": iterator})
    path.rename(path.with_name("process_0-of-4.json"))
    with pytest.raises(StateError, match=r"states of 1 of 4 processes"):
        ocp.load_checkpointables(tmp_path / "one", {"data": iterator})


# The methods themselves.


class Later:
    """A folder that is made when it is waited for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def await_creation(self) -> Path:
        self.path.mkdir()
        return self.path


@pytest.mark.parametrize("make", [loader, mapped])
def test_saving_has_two_parts(make: Any, tmp_path: Path) -> None:
    """The first takes the state; the second waits for the folder and writes."""

    async def use() -> None:
        iterator = ahead(iter(make()), 2)
        folder = tmp_path / "later"
        writing = await iterator.save(Later(folder))
        assert not folder.exists()
        expected = rest(iterator)
        await writing
        again = iter(make())
        await (await again.load(folder))
        assert rest(again) == expected

    asyncio.run(use())


def test_a_folder_that_is_there_is_not_waited_for(tmp_path: Path) -> None:
    async def use() -> None:
        iterator = ahead(iter(mapped()), 2)
        await (await iterator.save(str(tmp_path)))
        again = iter(mapped())
        await (await again.load(str(tmp_path)))
        assert rest(again) == rest(iterator)

    asyncio.run(use())
    assert os.listdir(tmp_path) == ["process_0-of-1.json"]


def test_the_handler_writes_the_same(tmp_path: Path) -> None:
    for make in (loader, mapped):
        iterator = ahead(iter(make()), 2)
        CheckpointHandler().save(tmp_path, iterator)
        before = (tmp_path / "process_0-of-1.json").read_bytes()
        ocp.save_checkpointables(tmp_path / make.__name__, {"data": iterator})
        written = tmp_path / make.__name__ / "data" / "process_0-of-1.json"
        assert written.read_bytes() == before
        assert decode(before, "what was written") == iterator.state_dict()
