"""Iterators in Orbax's checkpoints: by managers, by single checkpointers, at their moment."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

from bushel.checkpoint import CheckpointHandler, CheckpointRestore, CheckpointSave
from bushel.errors import StateError
from tests.checkpoint.managers import MODEL, restore, save
from tests.checkpoint.pipelines import MAKERS, Counter, ahead, loader, mapped, rest, streamed
from tests.checkpoint.programs import run

inline = pytest.mark.parametrize("make", [loader, mapped, streamed])
every_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


# Managers.

MANAGERS: dict[str, Callable[[Path], Any]] = {
    "plain": ocp.CheckpointManager,
    "with names": lambda path: ocp.CheckpointManager(path, item_names=("model", "data")),
    "with handlers": lambda path: ocp.CheckpointManager(
        path,
        item_handlers={"model": ocp.StandardCheckpointHandler(), "data": CheckpointHandler()},
    ),
    "not async": lambda path: ocp.CheckpointManager(
        path, options=ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    ),
}


@pytest.mark.parametrize("make", [loader, streamed])
@pytest.mark.parametrize("manage", MANAGERS.values(), ids=MANAGERS.keys())
def test_every_step_is_restored(make: Any, manage: Any, tmp_path: Path) -> None:
    iterator = iter(make())
    everything = rest(iter(make()))
    with manage(tmp_path) as manager:
        for step in range(1, 5):
            next(iterator)
            save(manager, step, iterator)
        manager.wait_until_finished()
        iterator.close()
        for step in (4, 1, 3):
            assert rest(restore(manager, step, iter(make()))) == everything[step:]
        assert rest(restore(manager, None, iter(make()))) == everything[4:]


@every_kind
def test_the_model_comes_with_it(make: Any, tmp_path: Path) -> None:
    iterator = ahead(iter(make()), 2)
    with ocp.CheckpointManager(tmp_path) as manager:
        save(manager, 1, iterator)
        expected = rest(iterator)
        args = ocp.args.Composite(
            model=ocp.args.StandardRestore(MODEL), data=CheckpointRestore(iter(make()))
        )
        restored = manager.restore(1, args=args)
    assert restored["model"]["weights"].tolist() == [0, 1, 2]
    assert rest(restored["data"]) == expected


@inline
def test_a_single_item(make: Any, tmp_path: Path) -> None:
    iterator = ahead(iter(make()), 2)
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(7, args=CheckpointSave(iterator))
        expected = rest(iterator)
        again = iter(make())
        assert manager.restore(7, args=CheckpointRestore(again)) is again
        assert manager.restore(None, args=CheckpointRestore(again)) is again
    assert rest(again) == expected


@every_kind
def test_an_iterator_goes_back_to_where_it_was(make: Any, tmp_path: Path) -> None:
    iterator = ahead(iter(make()), 2)
    with ocp.CheckpointManager(tmp_path) as manager:
        save(manager, 1, iterator)
        expected = [np.asarray(next(iterator)).tolist() for _ in range(4)]
        restore(manager, 1, iterator)
    assert [np.asarray(next(iterator)).tolist() for _ in range(4)] == expected
    iterator.close()


@inline
def test_at_the_beginning_and_at_the_end(make: Any, tmp_path: Path) -> None:
    iterator = iter(make())
    with ocp.CheckpointManager(tmp_path) as manager:
        save(manager, 1, iterator)
        everything = list(map(np.ndarray.tolist, iterator))
        save(manager, 2, iterator)
        iterator.close()
        assert rest(restore(manager, 1, iter(make()))) == everything
        assert rest(restore(manager, 2, iter(make()))) == []


RESIZED = {
    "loader, none to two": (loader(0), loader(2)),
    "loader, two to none": (loader(2), loader(0)),
    "stream, none to two": (streamed(0), streamed(2)),
    "stream, two to one": (streamed(2), streamed(1)),
}


@pytest.mark.parametrize(("before", "after"), RESIZED.values(), ids=RESIZED.keys())
def test_another_number_of_workers(before: Any, after: Any, tmp_path: Path) -> None:
    iterator = ahead(iter(before), 5)
    with ocp.CheckpointManager(tmp_path) as manager:
        save(manager, 1, iterator)
        expected = rest(iterator)
        assert rest(restore(manager, 1, iter(after))) == expected


def test_only_so_many_are_kept(tmp_path: Path) -> None:
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    iterator = iter(mapped())
    with ocp.CheckpointManager(tmp_path, options=options) as manager:
        for step in range(1, 6):
            next(iterator)
            save(manager, step, iterator)
        manager.wait_until_finished()
        assert manager.all_steps() == [4, 5]
        assert rest(restore(manager, 4, iter(mapped()))) == rest(iter(mapped()))[4:]


def test_the_best_is_kept(tmp_path: Path) -> None:
    options = ocp.CheckpointManagerOptions(max_to_keep=1, best_fn=lambda metrics: metrics["score"])
    iterator = iter(mapped())
    with ocp.CheckpointManager(tmp_path, options=options) as manager:
        for step, score in enumerate([3.0, 9.0, 5.0], start=1):
            next(iterator)
            save(manager, step, iterator, metrics={"score": score})
        manager.wait_until_finished()
        assert manager.best_step() == 2
        assert manager.all_steps() == [2]
        assert rest(restore(manager, 2, iter(mapped()))) == rest(iter(mapped()))[2:]


def test_a_step_that_is_not_there(tmp_path: Path) -> None:
    iterator = ahead(iter(mapped()), 1)
    with ocp.CheckpointManager(tmp_path) as manager:
        save(manager, 1, iterator)
        manager.wait_until_finished()
        expected = rest(restore(manager, 1, iter(mapped())))
        with pytest.raises(FileNotFoundError, match="5"):
            restore(manager, 5, iterator)
        assert rest(iterator) == expected


def test_another_manager_finds_it(tmp_path: Path) -> None:
    """As after a restart: nothing is known but the folder."""
    iterator = ahead(iter(loader()), 4)
    with ocp.CheckpointManager(tmp_path) as manager:
        save(manager, 12, iterator)
    with ocp.CheckpointManager(tmp_path) as manager:
        assert manager.latest_step() == 12
        assert rest(restore(manager, None, iter(loader()))) == rest(iterator)
        assert manager.item_metadata(12)["data"] is None


# The moment of saving.


def test_the_state_is_that_of_the_moment_of_saving(tmp_path: Path) -> None:
    iterator = Counter()
    with ocp.CheckpointManager(tmp_path) as manager:
        for step in range(1, 10):
            next(iterator)
            save(manager, step, iterator)
            ahead(iterator, 100)
        manager.wait_until_finished()
        for step in range(1, 10):
            restored = restore(manager, step, Counter())
            last = (step - 1) * 101 + 1
            assert restored.state == {"count": last, "seen": list(range(last + 1))}


def test_restoring_lets_it_begin_to_read(tmp_path: Path) -> None:
    iterator = Counter()
    handler = CheckpointHandler()
    handler.save(epath.Path(tmp_path), iterator)
    assert iterator.started == 0
    handler.restore(epath.Path(tmp_path), iterator)
    assert iterator.started == 1


class Bare:
    """Not an iterator of bushel's: all that is asked for is a state."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: Any) -> None:
        self.state = state


@pytest.mark.parametrize(
    ("saved", "fresh"), [({"at": 3}, {}), (b'{"at": 3}', b"{}")], ids=["dict", "bytes"]
)
def test_whatever_has_a_state(saved: Any, fresh: Any, tmp_path: Path) -> None:
    handler = CheckpointHandler()
    handler.save(epath.Path(tmp_path), Bare(saved))
    restored = handler.restore(epath.Path(tmp_path), Bare(fresh))
    assert type(restored.state) is type(saved)
    assert restored.state == saved or json.loads(restored.state) == {"at": 3}


def test_a_state_that_is_no_json_fails_when_it_is_saved(tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path) as manager:
        with pytest.raises(StateError, match="cannot be written as JSON"):
            save(manager, 1, Bare({"seen": {1, 2}}))
        manager.wait_until_finished()
        assert manager.all_steps() == []


# Single checkpointers, as in the guides of older versions.


@inline
def test_a_checkpointer_with_the_item_by_name(make: Any, tmp_path: Path) -> None:
    iterator = ahead(iter(make()), 2)
    with ocp.Checkpointer(CheckpointHandler()) as checkpointer:
        checkpointer.save(tmp_path / "one", item=iterator)
        checkpointer.save(tmp_path / "two", args=CheckpointSave(iterator))
        expected = rest(iterator)
        again = iter(make())
        assert checkpointer.restore(tmp_path / "one", item=again) is again
        assert rest(again) == expected
        again = checkpointer.restore(tmp_path / "two", args=CheckpointRestore(iter(make())))
        assert rest(again) == expected


def test_an_async_checkpointer(tmp_path: Path) -> None:
    iterator = Counter()
    with ocp.AsyncCheckpointer(CheckpointHandler()) as checkpointer:
        checkpointer.save(tmp_path / "one", args=CheckpointSave(ahead(iterator, 3)))
        ahead(iterator, 5)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "one", args=CheckpointRestore(Counter()))
    assert restored.state["count"] == 3


def test_the_handler_alone(tmp_path: Path) -> None:
    handler = CheckpointHandler()
    iterator = ahead(iter(mapped()), 2)
    handler.save(epath.Path(tmp_path), args=CheckpointSave(iterator))
    assert os.listdir(tmp_path) == ["process_0-of-1.json"]
    restored = handler.restore(epath.Path(tmp_path), args=CheckpointRestore(iter(mapped())))
    assert rest(restored) == rest(iterator)
    assert handler.structure(epath.Path(tmp_path)) is None
    assert handler.metadata(epath.Path(tmp_path)) is None
    handler.finalize(epath.Path(tmp_path))
    handler.close()
    # Part of every checkpoint: another name would make those of today unknown.
    assert handler.typestr() == "bushel.checkpoint.orbax.CheckpointHandler"


def test_what_is_not_an_iterator(tmp_path: Path) -> None:
    for item in (3, None, "text"):
        for kind in (CheckpointSave, CheckpointRestore):
            with pytest.raises(TypeError, match=f"and this is a {type(item).__name__}"):
                kind(item)
    with pytest.raises(TypeError, match=r"DataLoader\. Write `iter\(\.\.\.\)` around it"):
        CheckpointSave(loader())
    with pytest.raises(TypeError, match=r"Dataset\. Write `iter\(\.\.\.\)` around it"):
        CheckpointSave(mapped())
    with pytest.raises(TypeError, match="NoneType"):
        CheckpointHandler().save(epath.Path(tmp_path))
    assert os.listdir(tmp_path) == []


# Without Orbax.

_NOT_INSTALLED = """
import sys
sys.modules["orbax"] = None
import bushel, bushel.checkpoint
iterator = iter(bushel.MapDataset.range(3))
print(iterator.state_dict() == iterator.get_state(), dir(bushel.checkpoint))
try:
    bushel.checkpoint.CheckpointSave(iterator)
except ImportError as error:
    print(error)
"""


def test_orbax_is_not_installed() -> None:
    assert run(_NOT_INSTALLED).splitlines() == [
        "True ['CheckpointHandler', 'CheckpointRestore', 'CheckpointSave', 'PartCounts', "
        "'merge_states', 'mix_counts', 'pinned']",
        "checkpoints through Orbax need the package orbax-checkpoint: "
        'pip install "bushel[orbax]". Without it, save what `iterator.get_state()` returns.',
    ]
