"""Iterating with a look at what happens."""

from typing import Any

from bushel.core.options import DatasetOptions, ExecutionTrackingMode

_MEASURED = DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING)


def iterate(dataset: Any, *, stats: bool = True) -> Any:
    """Makes an iterator that counts and times the steps of a dataset or `DataLoader`.

    The elements, and the states, are those of `iter(dataset)`. Without `stats` it is that.

    >>> import bushel
    >>> iterator = iterate(bushel.MapDataset.range(100).map(abs).batch(10))
    >>> sum(len(batch) for batch in iterator)
    100
    >>> records = {step.name: step.records for step in iterator.stats().steps}
    >>> records["batch(10)"], records["map(abs)"]
    (10, 100)
    """
    if not stats:
        return iter(dataset)
    make = getattr(dataset, "_iterate_with", None)
    if make is None:
        raise TypeError(
            f"bushel.iterate takes a MapDataset, an IterDataset or a DataLoader, and got a "
            f"{type(dataset).__name__}."
        )
    return make(_MEASURED)
