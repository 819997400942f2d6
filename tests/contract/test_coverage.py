"""Every operation is in the list of pipelines."""

import inspect
from typing import Any

import pytest

from bushel import IterDataset, MapDataset
from bushel.dataset import MapNodeDataset, StreamNodeDataset
from bushel.grain import named as named_datasets
from bushel.grain import packed as packed_datasets
from bushel.grain import streams as stream_datasets
from tests.contract.pipelines import PIPELINES

# Public, and no step of a pipeline; or one that needs a cluster (tests/cluster has it).
_NO_STEPS = {"explain", "parents", "mro", "register", "ray_prefetch", "write"}
_MODULES = (named_datasets, packed_datasets, stream_datasets)


def _operations(cls: Any) -> set[str]:
    names = {name for name in dir(cls) + dir(type(cls)) if not name.startswith("_")}
    return {f"{cls.__name__}.{name}" for name in names - _NO_STEPS}


def _named_datasets() -> dict[str, Any]:
    return {
        name: member
        for module in _MODULES
        for name, member in inspect.getmembers(module, inspect.isclass)
        if member.__module__ == module.__name__
        and issubclass(member, (MapDataset, IterDataset))
        and not name.startswith("_")
    }


@pytest.mark.parametrize("cls", [MapDataset, IterDataset])
def test_every_method_is_in_the_list(cls: Any) -> None:
    listed = {name.split(":")[0] for name in PIPELINES}
    assert _operations(cls) - listed == set()


def test_every_named_dataset_is_in_the_list() -> None:
    assert _named_datasets().keys() - {name.split(":")[0] for name in PIPELINES} == set()


def test_the_list_names_nothing_else() -> None:
    known = _operations(MapDataset) | _operations(IterDataset) | _named_datasets().keys()
    known |= {"MapDataset", "IterDataset", "multithread_prefetch"}
    assert {name.split(":")[0] for name in PIPELINES} - known == set()


def test_named_datasets_are_nodes() -> None:
    for dataset in _named_datasets().values():
        assert issubclass(dataset, (MapNodeDataset, StreamNodeDataset))
