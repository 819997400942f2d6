"""Loaders over one epoch, as the workloads use them."""

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any


def epoch_loader(
    lib: ModuleType,
    source: Any,
    operations: Sequence[Any],
    seed: int,
    shuffle: bool = True,
    *,
    records: int | None = None,
    workers: int = 0,
) -> Iterable[Any]:
    """Reads each record of the source once, with all other options as the library sets them.

    Workers read without threads: on two cores that is what suits Grain best, by far.
    """
    sampler = lib.samplers.IndexSampler(
        num_records=len(source) if records is None else records,
        shard_options=lib.sharding.NoSharding(),
        shuffle=shuffle,
        num_epochs=1,
        seed=seed,
    )
    loader: Iterable[Any] = lib.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=operations,
        worker_count=workers,
        read_options=lib.ReadOptions(num_threads=0) if workers else None,
    )
    return loader


def in_workers(lib: ModuleType, dataset: Any, workers: int) -> Iterable[Any]:
    """Lets worker processes evaluate a dataset, without threads in them, as `epoch_loader` does."""
    stream = dataset.to_iter_dataset(lib.ReadOptions(num_threads=0))
    delivered: Iterable[Any] = stream.mp_prefetch(lib.MultiprocessingOptions(num_workers=workers))
    return delivered


def torch_loader(source: Any, batch_size: int, workers: int, shuffle: bool = True) -> Iterable[Any]:
    """Forks its workers, which is torch's default on Linux and its quickest start."""
    from torch.utils.data import DataLoader

    loader: Iterable[Any] = DataLoader(
        source,
        batch_size=batch_size,
        shuffle=shuffle,
        num_workers=workers,
        multiprocessing_context="fork",
    )
    return loader
