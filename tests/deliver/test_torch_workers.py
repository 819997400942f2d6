"""Datasets within a torch `DataLoader`: every element once, or an error that says how."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from bushel import MapDataset, ReadOptions
from bushel.errors import PlanError

torch_data: Any = pytest.importorskip("torch.utils.data")


class Wrapped(torch_data.IterableDataset):  # type: ignore[misc]
    def __init__(self, shares: bool) -> None:
        self._shares = shares

    def __iter__(self) -> Iterator[Any]:
        ds = MapDataset.range(40)
        info = torch_data.get_worker_info()
        if self._shares and info is not None:
            ds = ds[info.id :: info.num_workers]
        return iter(ds.to_iter_dataset(ReadOptions(0, 0)).batch(4))


def _loaded(shares: bool, workers: int) -> list[list[int]]:
    loader = torch_data.DataLoader(Wrapped(shares), batch_size=None, num_workers=workers)
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 1])
def test_one_process_has_all(workers: int) -> None:
    batches = _loaded(False, workers)
    assert [number for batch in batches for number in batch] == list(range(40))


def test_two_workers_with_all_of_it_are_refused() -> None:
    text = ""
    try:
        _loaded(False, 2)
    except PlanError as error:  # Not `raises`, which keeps the frames, and so torch's workers.
        text = str(error)
    gc.collect()  # torch's iterator, which ends its workers, refers to itself.
    assert "every element would come 2 times" in text
    assert ".mp_prefetch(MultiprocessingOptions(num_workers=2))" in text


def test_two_workers_with_a_share_each_have_it_once() -> None:
    batches = _loaded(True, 2)
    assert sorted(number for batch in batches for number in batch) == list(range(40))
