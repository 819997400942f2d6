"""`pick_performance_config`: numbers of workers and buffers that fit into the memory."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bushel.core.machine import available_cores
from bushel.core.options import MultiprocessingOptions, ReadOptions
from bushel.core.sizes import bytes_of
from bushel.core.tuned_options import AutotuneParameter
from bushel.errors import PlanError

_MEGABYTE = 1 << 20
_USUAL = ReadOptions()


@dataclass(slots=True)
class PerformanceConfig:
    """Options that were suggested together."""

    multiprocessing_options: MultiprocessingOptions | None = None
    read_options: ReadOptions | None = None


def pick_performance_config(
    ds: Any,
    *,
    ram_budget_mb: int | None,
    max_workers: int | None,
    max_buffer_size: int | None,
    samples_to_check: int = 5,
    tune: bool = False,
) -> PerformanceConfig:
    """Suggests options for a dataset such that what is kept ready fits into a memory budget.

    A few elements are made, and the records that they are made of are read, to see how large
    they are on average. Workers come first: one for each element that fits into the budget.
    Then as many records are read ahead as fit beside them.

    >>> import numpy as np
    >>> from bushel import MapDataset
    >>> ds = MapDataset.source(np.zeros((100, 1 << 18))).to_iter_dataset()  # 2 MB each
    >>> config = pick_performance_config(ds, ram_budget_mb=64, max_workers=4, max_buffer_size=500)
    >>> config.multiprocessing_options.num_workers, config.read_options.prefetch_buffer_size
    (4, 28)
    >>> limits = {"ram_budget_mb": 64, "max_workers": 4, "max_buffer_size": 500}
    >>> pick_performance_config(ds, tune=True, **limits).multiprocessing_options.num_workers
    AutotuneParameter(least=1, most=4)

    Args:
      ds: the stream that is to be sped up. It is not changed.
      ram_budget_mb: for all that is kept ready, in megabytes of 2^20 bytes; None sets no
        limit.
      max_workers: None for as many as there are processors.
      max_buffer_size: the most records to read ahead; None for the usual number.
      samples_to_check: so many elements are looked at.
      tune: has these numbers be the most, and those that the loop needs be found out while it
        runs: memory says how many workers there can be, and not how many pay.
    """
    _check_limits(ram_budget_mb, max_workers, max_buffer_size, samples_to_check)
    if not hasattr(ds, "parents") or not hasattr(ds, "__iter__"):
        raise TypeError(
            f"`pick_performance_config` takes a dataset, and got a {type(ds).__name__}: "
            f"{ds!r:.100}."
        )
    if max_workers is None:
        max_workers = available_cores()
    if max_buffer_size is None:
        max_buffer_size = _USUAL.prefetch_buffer_size
    budget = math.inf if ram_budget_mb is None else ram_budget_mb * _MEGABYTE
    element = _mean_bytes(ds, samples_to_check)
    workers = _fitting(budget, element, max_workers)
    # Streams that are mixed or zipped prefetch independently.
    record = sum(_mean_bytes(read, samples_to_check) for read in _reads(ds))
    buffered = _fitting(budget - workers * element, record, max_buffer_size)
    if tune:
        within: int | AutotuneParameter = AutotuneParameter(most=workers) if workers else 0
        return PerformanceConfig(
            MultiprocessingOptions(num_workers=within, ram_budget_mb=ram_budget_mb or None),
            ReadOptions(min(_USUAL.num_threads, buffered), buffered),
        )
    return PerformanceConfig(
        MultiprocessingOptions(num_workers=workers),
        # A thread without a place for its record would only wait.
        ReadOptions(min(_USUAL.num_threads, buffered), buffered),
    )


def _fitting(budget: float, size: float, most: int) -> int:
    if size == 0 or budget == math.inf:
        return most
    return min(most, int(budget // size))


def _reads(ds: Any) -> Iterator[Any]:
    """Finds the random-access datasets that a stream reads."""
    if hasattr(ds, "__getitem__"):
        yield ds
        return
    for parent in ds.parents:
        yield from _reads(parent)


def _mean_bytes(ds: Any, samples: int) -> float:
    """Measures the first elements of a dataset; an empty one takes no memory."""
    sizes = [bytes_of(element) for element in _first(ds, samples)]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _first(ds: Any, count: int) -> list[Any]:
    if hasattr(ds, "__getitem__"):
        # By position, as iterating would prefetch, perhaps more than the budget.
        elements = [ds[position] for position in range(min(count, len(ds)))]
        return [element for element in elements if element is not None]
    iterator = iter(ds)
    try:
        return list(islice(iterator, count))
    finally:
        if hasattr(iterator, "close"):
            iterator.close()


def _check_limits(
    ram_budget_mb: Any, max_workers: Any, max_buffer_size: Any, samples_to_check: Any
) -> None:
    limits = {
        "ram_budget_mb": ram_budget_mb,
        "max_workers": max_workers,
        "max_buffer_size": max_buffer_size,
    }
    for name, value in limits.items():
        kinds = (int, float) if name == "ram_budget_mb" else int
        if value is not None and not isinstance(value, kinds):
            raise TypeError(f"`{name}` must be a number or None, and is {value!r}.")
        if value is not None and not value >= 0:
            raise PlanError(f"`{name}` must not be negative, and is {value}.")
    if not isinstance(samples_to_check, int):
        raise TypeError(f"`samples_to_check` must be an integer, and is {samples_to_check!r}.")
    if samples_to_check < 1:
        raise PlanError(
            f"`samples_to_check` must be at least 1, and is {samples_to_check}: the options "
            "depend on the size of an element."
        )
