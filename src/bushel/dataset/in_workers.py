"""`mp_prefetch`, `ray_prefetch` and `prefetch`: prefetch by processes or by a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from bushel.core.arguments import explains
from bushel.core.options import MultiprocessingOptions, WorkersKey
from bushel.core.places import WorkersNode
from bushel.dataset.base import Dataset, T

if TYPE_CHECKING:
    from bushel.core.node import Node
    from bushel.core.ray_options import RayOptions
    from bushel.dataset.stream import IterDataset

_FOR_WORKERS = dict.fromkeys(
    ("workers", "num_workers", "worker_count"),
    "mp_prefetch(MultiprocessingOptions(num_workers=...))",
)


class InWorkers(Dataset[T]):
    """Methods of a stream that run it in workers."""

    if TYPE_CHECKING:

        def _then(self, node: Node) -> IterDataset[Any]: ...

        def _stream_node(self) -> Node: ...

    @explains(instead=_FOR_WORKERS)
    def mp_prefetch(
        self,
        options: MultiprocessingOptions | None = None,
        worker_init_fn: Callable[[int, int], None] | None = None,
        sequential_slice: bool = False,
    ) -> IterDataset[T]:
        """Runs the pipeline so far in worker processes; without workers it does nothing.

        The stream and its states are the same with any number of workers. Workers
        stay for the next pass over this dataset. They end with the dataset, or when an iterator
        is closed.

        Args:
          options: the number of workers, their prefetching, and what to do about hangs.
          worker_init_fn: called in each worker, before anything else, with the number of the
            worker and the number of workers.
          sequential_slice: accepted for programs written for Grain, without effect: workers do
            not have parts of the data.
        """
        if options is None:
            return cast("IterDataset[T]", self)
        if not isinstance(options, MultiprocessingOptions):
            number = options if isinstance(options, int) else 2
            raise TypeError(
                "`mp_prefetch` takes `MultiprocessingOptions`, and got a "
                f"{type(options).__name__}: {options!r:.100}. Write "
                f"`mp_prefetch(MultiprocessingOptions(num_workers={number}))`."
            )
        if not options.num_workers:
            return cast("IterDataset[T]", self)
        if worker_init_fn is not None and not callable(worker_init_fn):
            raise TypeError(f"`worker_init_fn` must be a function, and is {worker_init_fn!r}.")
        from bushel.deliver.early_workers import key_of_workers  # Only for those who want them.

        key = key_of_workers()
        return self._then(WorkersNode(self._stream_node(), options, worker_init_fn, key))

    def ray_prefetch(
        self,
        options: RayOptions | None = None,
        worker_init_fn: Callable[[int, int], None] | None = None,
    ) -> IterDataset[T]:
        """Runs the pipeline so far in workers on a Ray cluster.

        The stream and its states are the same as with local workers, or without workers, so
        states are interchangeable. Needs the package `ray`; connects to an existing cluster,
        and starts one only with `RayOptions(address="local")`.

        Args:
          options: the number of workers, where they may run, and what to do about hangs.
          worker_init_fn: called in each worker, before anything else, with the number of the
            worker and the number of workers.
        """
        from bushel.core.ray_options import RayOptions

        options = RayOptions() if options is None else options
        if not isinstance(options, RayOptions):
            raise TypeError(
                f"`ray_prefetch` takes `RayOptions`, and got a {type(options).__name__}: "
                f"{options!r:.100}. Write `ray_prefetch(RayOptions(num_workers=2))`."
            )
        if worker_init_fn is not None and not callable(worker_init_fn):
            raise TypeError(f"`worker_init_fn` must be a function, and is {worker_init_fn!r}.")
        node = WorkersNode(self._stream_node(), options, worker_init_fn, WorkersKey())
        return self._then(node)

    def prefetch(self, multiprocessing_options: MultiprocessingOptions) -> IterDataset[T]:
        """The older name of `mp_prefetch`."""
        return self.mp_prefetch(multiprocessing_options)
