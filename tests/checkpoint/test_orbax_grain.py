"""Folders that Grain wrote are restored here, and go on where Grain would."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import grain
import numpy as np
import orbax.checkpoint as ocp
import pytest

import bushel
from bushel.checkpoint import CheckpointHandler
from tests.checkpoint.managers import restore
from tests.checkpoint.pipelines import Numbers, ahead, rest
from tests.checkpoint.programs import run
from tests.thorough import THOROUGH


def _grain_sources(lib: Any) -> dict[str, Any]:
    return {
        "range": lib.sources.RangeDataSource(5, 85, 2),
        "list": [10 * i for i in range(40)],
        "tuple": tuple(range(40)),
        "own": Numbers(),
    }


def _grain_samplers(lib: Any) -> dict[str, Any]:
    shard = lib.sharding.ShardOptions(1, 3, drop_remainder=True)
    return {
        "shuffled": lib.samplers.IndexSampler(40, shuffle=True, seed=3, num_epochs=2),
        "a shard": lib.samplers.IndexSampler(40, shard, shuffle=True, seed=3, num_epochs=3),
        "in order": lib.samplers.SequentialSampler(40, seed=8),
    }


def _grain_operations(lib: Any) -> dict[str, list[Any]]:
    class Draw(lib.transforms.RandomMap):  # type: ignore[misc]
        def random_map(self, element: Any, rng: np.random.Generator) -> Any:
            return int(element + rng.integers(1000))

    class Some(lib.transforms.Filter):  # type: ignore[misc]
        def filter(self, element: Any) -> bool:
            return bool(element % 20)

    return {"none": [], "batch": [Draw(), lib.transforms.Batch(2)], "filter": [Some(), Draw()]}


TAKEN = [0, 1, 4]
LOADERS = [
    (source, sampler, operations, taken)
    for number, (source, sampler, operations) in enumerate(
        product(
            ["range", "list", "tuple", "own"],
            ["shuffled", "a shard", "in order"],
            ["none", "batch", "filter"],
        )
    )
    # Each of them after one of these, and after all of them by `make test-all`.
    for taken in (TAKEN if THOROUGH else [TAKEN[(number + number // 3) % len(TAKEN)]])
]


@pytest.mark.parametrize(("source", "sampler", "operations", "taken"), LOADERS)
def test_a_loader_goes_on_where_grain_stopped(
    source: str, sampler: str, operations: str, taken: int, tmp_path: Path
) -> None:
    def make(lib: Any) -> Any:
        loader = lib.DataLoader(
            data_source=_grain_sources(lib)[source],
            sampler=_grain_samplers(lib)[sampler],
            operations=_grain_operations(lib)[operations],
            worker_count=0,
        )
        return iter(loader)

    theirs = ahead(make(grain), taken)
    checkpointer = ocp.Checkpointer(grain.checkpoint.CheckpointHandler())
    checkpointer.save(tmp_path / "saved", args=grain.checkpoint.CheckpointSave(theirs))
    ours = ocp.Checkpointer(CheckpointHandler()).restore(tmp_path / "saved", item=make(bushel))
    expected = [np.asarray(element).tolist() for element in theirs]
    assert expected
    assert rest(ours) == expected


GRAIN_DATASETS: dict[str, Callable[[Any], Any]] = {
    "map": lambda lib: lib.MapDataset.range(30).shuffle(seed=2).map(lambda x: x + 1),
    "epochs": lambda lib: lib.MapDataset.range(7).seed(4).shuffle().repeat(3).batch(2),
    "stream": lambda lib: lib.MapDataset.range(30).to_iter_dataset().filter(lambda x: x % 3),
    "random": lambda lib: (
        lib.MapDataset.range(30)
        .to_iter_dataset()
        .seed(1)
        .random_map(lambda x, rng: x + int(rng.integers(99)))
        .batch(2)
    ),
    "counted": lambda lib: (
        lib.MapDataset.range(30)
        .to_iter_dataset()
        .filter(lambda x: x % 2)
        .map_with_index(lambda i, x: (i, x))
    ),
    "mixed maps": lambda lib: lib.MapDataset.mix(
        [lib.MapDataset.range(20), lib.MapDataset.range(100, 140)], [1, 2]
    ),
    "mixed streams": lambda lib: lib.IterDataset.mix(
        [lib.MapDataset.range(9).to_iter_dataset(), lib.MapDataset.range(20).to_iter_dataset()],
        [1, 2],
    ),
    "windows": lambda lib: lib.experimental.WindowShuffleIterDataset(
        lib.MapDataset.range(30).to_iter_dataset(), window_size=4, seed=5
    ),
    "flattened": lambda lib: lib.experimental.ZipIterDataset(
        [lib.MapDataset.range(9).to_iter_dataset(), lib.MapDataset.range(9).to_iter_dataset()]
    ),
}


@pytest.mark.parametrize("taken", [0, 1, 5])
@pytest.mark.parametrize("name", GRAIN_DATASETS)
def test_a_dataset_goes_on_where_grain_stopped(name: str, taken: int, tmp_path: Path) -> None:
    make = GRAIN_DATASETS[name]
    theirs = ahead(iter(make(grain)), taken)
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=ocp.args.Composite(data=grain.checkpoint.CheckpointSave(theirs)))
    with ocp.CheckpointManager(tmp_path) as manager:
        ours = restore(manager, 1, iter(make(bushel)))
    expected = [np.asarray(element).tolist() for element in theirs]
    assert expected
    assert rest(ours) == expected


_WITHOUT_GRAIN = """
import sys
import orbax.checkpoint as ocp
from bushel import MapDataset
from bushel.checkpoint import CheckpointRestore

iterator = iter(MapDataset.range(30).shuffle(seed=2))
with ocp.CheckpointManager(sys.argv[1]) as manager:
    manager.restore(1, args=ocp.args.Composite(data=CheckpointRestore(iterator)))
print("grain" in sys.modules, *iterator)
"""


def test_grain_need_not_be_there(tmp_path: Path) -> None:
    theirs = ahead(iter(grain.MapDataset.range(30).shuffle(seed=2)), 4)
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=ocp.args.Composite(data=grain.checkpoint.CheckpointSave(theirs)))
    assert run(_WITHOUT_GRAIN, tmp_path).split() == ["False", *map(str, theirs)]


def test_the_files_are_where_grain_has_them(tmp_path: Path) -> None:
    def files(lib: Any) -> set[str]:
        folder = tmp_path / lib.__name__
        with ocp.CheckpointManager(folder) as manager:
            save = lib.checkpoint.CheckpointSave(iter(lib.MapDataset.range(3)))
            manager.save(1, args=ocp.args.Composite(data=save))
        return {str(path.relative_to(folder)) for path in folder.rglob("*")}

    assert files(bushel) == files(grain)
