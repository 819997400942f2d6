"""`bushel.iterate`: its arguments; makes an iterator with statistics, published and recorded."""

import os
from typing import Any

from bushel.core.options import DatasetOptions, ExecutionTrackingMode
from bushel.deliver.live_page import LivePage
from bushel.deliver.timed import TimedIterator
from bushel.errors import PlanError
from bushel.watch.recorder import path_of_host, recorded

_MEASURED = DatasetOptions(execution_tracking_mode=ExecutionTrackingMode.STAGE_TIMING)


def iterate(
    dataset: Any,
    *,
    stats: bool | str | os.PathLike[str] = True,
    record: str | os.PathLike[str] | None = None,
    every: int | None = None,
    first_step: int | None = None,
    checksums: bool = True,
) -> Any:
    """Makes an iterator that counts and times the steps of a dataset or `DataLoader`.

    The elements, and the states, are those of `iter(dataset)`. Without `stats` and `record` it is
    that.

    >>> import bushel
    >>> iterator = iterate(bushel.MapDataset.range(100).map(abs).batch(10))
    >>> sum(len(batch) for batch in iterator)
    100
    >>> records = {step.name: step.records for step in iterator.stats().steps}
    >>> records["batch(10)"], records["map(abs)"]
    (10, 100)

    Args:
      dataset: a dataset or a `DataLoader`.
      stats: whether steps are counted and timed. A path has the figures put in that file, and not
        in memory: `bushel top` and `bushel serve` take it in place of a process, also from another
        container or after the program was killed. Where there are several hosts, each has its own.
      record: the path of a new file, private to the user, that is written while the iterator is
        used: `bushel replay`, `bushel diff` and `bushel why-slow` read it. Where there is such a
        file it is kept, and the new one gets a number: `run.bushel`, `run-2.bushel`, ...; where
        there are several hosts, each has its own, `run.host3.bushel`. `iterator.recording` is its
        path. What happens to workers and threads is recorded where there are `stats`.
      every: after so many steps there is a line with the state, the wait and a checksum. If None,
        that is 100, or 200, 400, ... where steps are so short that lines would take more than a
        fifth of a percent of the time.
      first_step: the number of the first step for the recording, where a state that is set does
        not tell it: after filters, which leave out elements, only the training knows.
      checksums: whether lines have a checksum of what was handed out, by which `bushel replay` and
        `bushel diff` tell whether it was the same. To make one takes about as long as to read the
        memory of a batch, for the steps that have a line.
    """
    path = None if isinstance(stats, bool) else os.fspath(stats)
    if path is not None and not path:
        raise PlanError("`stats` is True, False or the path of a file, and the path is empty.")
    if not stats and record is None:
        return iter(dataset)
    make = getattr(dataset, "_iterate_with", None)
    if make is None:
        raise TypeError(
            f"bushel.iterate takes a MapDataset, an IterDataset or a DataLoader, and got a "
            f"{type(dataset).__name__}."
        )
    iterator = make(_MEASURED if stats else DatasetOptions())
    try:
        if path is not None:
            stream: TimedIterator[Any] = getattr(iterator, "_iterator", iterator)
            stream.publish_to(LivePage(path_of_host(path)))
        if record is None:
            return iterator
        return recorded(iterator, record, every, first_step, bool(checksums))
    except BaseException:
        iterator.close()
        raise
