"""A loader over one epoch, as the workloads use it in bushel and in Grain."""

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any


def epoch_loader(
    lib: ModuleType, source: Any, operations: Sequence[Any], seed: int, shuffle: bool = True
) -> Iterable[Any]:
    """Reads each record of the source once, with all options as the library sets them."""
    sampler = lib.samplers.IndexSampler(
        num_records=len(source),
        shard_options=lib.sharding.NoSharding(),
        shuffle=shuffle,
        num_epochs=1,
        seed=seed,
    )
    loader: Iterable[Any] = lib.DataLoader(
        data_source=source, sampler=sampler, operations=operations
    )
    return loader
