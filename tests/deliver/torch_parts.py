"""A dataset of torch's, in a module that is imported when it is used."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from bushel import MapDataset, ReadOptions


class Wrapped(IterableDataset):  # type: ignore[misc]
    def __init__(self, shares: bool) -> None:
        self._shares = shares

    def __iter__(self) -> Iterator[Any]:
        ds = MapDataset.range(40)
        info = get_worker_info()
        if self._shares and info is not None:
            ds = ds[info.id :: info.num_workers]
        return iter(ds.to_iter_dataset(ReadOptions(0, 0)).batch(4))


def loaded(shares: bool, workers: int) -> list[list[int]]:
    """Batches that come from a `DataLoader` of torch's, with so many workers of its own."""
    loader = DataLoader(Wrapped(shares), batch_size=None, num_workers=workers)
    return [batch.tolist() for batch in loader]
