"""Checkpoints of other pipelines, and damaged ones: what is said, and that nothing happens."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

import bushel
from bushel import IterDataset, MapDataset
from bushel.checkpoint import CheckpointHandler
from bushel.errors import StateError
from tests.checkpoint.managers import restore, save
from tests.checkpoint.pipelines import Noise, ahead, loader, mapped, rest, streamed

CHANGES: dict[str, tuple[Any, Any, list[str]]] = {
    "seed of a sampler": (loader(), loader(seed=4), ["another sampler: seed was 3 and is 4 now."]),
    "records": (
        loader(),
        loader(count=50),
        [
            "another sampler: num_records was 40 and is 50 now.",
            "another data_source: argument 1 was 40 and is 50 now.",
        ],
    ),
    "operations": (
        loader(),
        loader(0, 3, 40, Noise()),
        ["other operations: `Noise` is new, before operation 1 (`Noise`)."],
    ),
    "everything": (
        loader(),
        loader(0, 5, 41, Noise()),
        [
            "another sampler: num_records was 40 and is 41 now, seed was 3 and is 5 now.",
            "another data_source: argument 1 was 40 and is 41 now.",
            "other operations: `Noise` is new",
        ],
    ),
    "seed of a shuffle": (
        mapped(),
        mapped(seed=7),
        ["another pipeline: step 2 was `shuffle(seed=1)` and is `shuffle(seed=7)` now."],
    ),
    "seed and batch size": (
        mapped(),
        mapped(7, 4),
        [
            "step 2 was `shuffle(seed=1)` and is `shuffle(seed=7)` now",
            "step 4 was `batch(3)` and is `batch(4)` now",
        ],
    ),
    "steps in and out": (
        MapDataset.range(9).to_iter_dataset().map(abs).batch(2),
        MapDataset.range(9).to_iter_dataset().batch(2).filter(np.any),
        ["step 3 (`map`) is gone", "`filter` is new, after step 4 (`batch(2)`)"],
    ),
    "a dataset for a loader": (
        mapped(),
        loader(),
        ["no state of a DataLoader"],
    ),
    "a loader for a dataset": (
        loader(),
        mapped(),
        ["saved by a DataLoader, and this is a dataset's"],
    ),
}


@pytest.mark.parametrize(("before", "after", "words"), CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_pipeline(before: Any, after: Any, words: list[str], tmp_path: Path) -> None:
    iterator = ahead(iter(after), 1)
    with ocp.CheckpointManager(tmp_path) as manager:
        save(manager, 1, ahead(iter(before), 2))
        with pytest.raises(StateError) as caught:
            restore(manager, 1, iterator)
    assert [text for text in words if text not in str(caught.value)] == []
    # Refused, it has changed nothing.
    assert rest(iterator) == rest(ahead(iter(after), 1))


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _of_two(path: Path) -> None:
    path.rename(path.with_name("process_0-of-2.json"))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, r"has no process_0-of-1\.json, so there is no state of an iterator"),
    "empty": (_emptied, "is empty"),
    "half": (_halved, "damaged, or no JSON"),
    "of two processes": (_of_two, r"states of 1 of 2 processes\. Missing: process_1-of-2\.json"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint(damage: Any, words: str, tmp_path: Path) -> None:
    iterator = ahead(iter(mapped()), 1)
    with ocp.CheckpointManager(tmp_path) as manager:
        save(manager, 1, iterator)
        manager.wait_until_finished()
        damage(tmp_path / "1" / "data" / "process_0-of-1.json")
        with pytest.raises(StateError, match=words):
            restore(manager, 1, iterator)
    assert rest(iterator) == rest(ahead(iter(mapped()), 1))


JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    3,
    2**70,
    1.5,
    "",
    "3",
    [],
    [1],
    {},
    {"next_index": "x"},
    [[[]]] * 3,
]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Everything in a state that could be replaced: what it is in, and where."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


MIXED = IterDataset.mix([streamed(), mapped().to_iter_dataset()], [1, 2])
WINDOWED = bushel.experimental.WindowShuffleIterDataset(streamed(), window_size=4, seed=5)


@pytest.mark.parametrize(
    "make",
    [loader, mapped, streamed, lambda: MIXED, lambda: WINDOWED],
    ids=["loader", "map", "stream", "mix", "window"],
)
@pytest.mark.filterwarnings("ignore::bushel.errors.ChangedPipelineWarning")
def test_whatever_a_state_says(make: Any, tmp_path: Path) -> None:
    """Any part of a state may be anything: it is refused as a state, or it is one."""
    handler, folder = CheckpointHandler(), epath.Path(tmp_path)
    handler.save(folder, ahead(iter(make()), 3))
    path = tmp_path / "process_0-of-1.json"
    saved = path.read_text()
    picks = random.Random(1)
    refused = 0
    for number in range(len(list(_places(json.loads(saved))))):
        for junk in [*JUNK, JUNK]:
            state = json.loads(saved)
            inside, key = list(_places(state))[number]
            if picks.random() < 0.1:
                del inside[key]
            else:
                inside[key] = junk
            if picks.random() < 0.5:
                state.pop("bushel", None)  # What is left is taken without comparing.
            path.write_text(json.dumps(state))
            iterator = iter(make())
            try:
                handler.restore(folder, iterator)
            except StateError:
                refused += 1
            iterator.close()
    assert refused
