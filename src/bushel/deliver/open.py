"""Opens a pipeline: plans it, lowers it, and makes the iterator over its stream."""

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bushel.checkpoint.code_and_files import made_with
from bushel.checkpoint.signed import describe_pipeline
from bushel.core.node import Node
from bushel.core.options import DatasetOptions
from bushel.core.places import OptionsNode, WorkersNode
from bushel.core.ray_options import RayOptions
from bushel.core.settings import config
from bushel.core.stream import Stream
from bushel.core.tuned_options import worker_bounds
from bushel.deliver.accelerate_job import refuse_unprepared
from bushel.deliver.iterator import StreamIterator
from bushel.deliver.job import agreement, process_of_job
from bushel.deliver.torch_workers import refuse_copies
from bushel.lanes.agree import Agreement
from bushel.run.plan import Lowered, Plan, plan_of

if TYPE_CHECKING:
    from bushel.deliver.timed import TimedIterator
    from bushel.run.build import LowerToWorkers
    from bushel.run.shared_threads import ThreadsInTurn
    from bushel.workers.engine import Engine

T = TypeVar("T")


def iterate(node: Node) -> StreamIterator[Any]:
    """Makes an iterator over the elements of a node."""
    made = partial(made_with, node)
    return iterator_over(open_node(node), describe_pipeline(node), made, node)


def iterator_over(lowered: Lowered, *args: Any, **kwargs: Any) -> StreamIterator[Any]:
    """Makes the iterator over a running stream; further arguments are passed to the iterator."""
    if lowered.times is None:
        return shown_if_asked(StreamIterator(lowered.stream, *args, **kwargs))
    return shown_if_asked(_timed_kind()(lowered.times, lowered.stream, *args, **kwargs))


def _timed_kind() -> "type[TimedIterator[Any]]":
    if config.py_debug_mode:
        from bushel.watch.debug import LoggingIterator  # It is above this module.

        return LoggingIterator
    from bushel.deliver.timed import TimedIterator

    return TimedIterator


def shown_if_asked(iterator: StreamIterator[T]) -> StreamIterator[T]:
    """The iterator; it explains its pipeline after its first element if a setting says so."""
    if config.py_dataset_visualization_output_dir is not None:
        from bushel.watch.visualize import show_after_first  # It is above this module.

        show_after_first(iterator, config.py_dataset_visualization_output_dir)
    return iterator


def open_stream(
    node: Node, options: DatasetOptions | None = None, shared: "ThreadsInTurn | None" = None
) -> Stream:
    """Makes the stream of a node, with worker processes if it asks for them.

    `options` are those of the pipeline that it is part of, whose threads are `shared`. Its steps
    are not counted: that pipeline counts all that it reads as one step.
    """
    node = node if options is None else OptionsNode(node, options)
    return open_node(node, shared, is_part=True).stream


def open_node(node: Node, shared: "ThreadsInTurn | None" = None, is_part: bool = False) -> Lowered:
    """Makes the stream of a node, and the statistics of its steps if they are wanted."""
    refuse_copies(node)
    refuse_unprepared(node)
    agreements: list[Agreement] = []

    def agree(timeout_s: float) -> Agreement:
        agreements.append(agreement(timeout_s))
        return agreements[-1]

    lowered = open_plan(plan_of(node, process_of_job, agree), shared, is_part)
    lowered.stream.wakers = [*lowered.stream.wakers, *(made.close for made in agreements)]
    return lowered


def plan(node: Node) -> Plan:
    """Makes all decisions about a stream that are made before it runs."""
    return plan_of(node, process_of_job, agreement)


def open_plan(plan: Plan, shared: "ThreadsInTurn | None" = None, is_part: bool = False) -> Lowered:
    """Opens the streams of a plan, with worker processes if it has them."""
    places: dict[int, WorkersNode] = {
        id(stretch.workers): stretch.workers
        for stretch in plan.cut.walk()
        if stretch.workers is not None
    }
    if not places:
        return _lowered(plan, None, shared, is_part)
    # Imported only for workers. The processes first: while they start, the rest is imported.
    from bushel.workers.home import home_of
    from bushel.workers.start import Starter

    starters: dict[int, Starter] = {}
    try:
        for place, step in places.items():
            if isinstance(step.options, RayOptions):
                continue  # The pool starts these on the cluster.
            if not home_of(step.key).has_workers:
                bounds = worker_bounds(step.options.num_workers)
                starters[place] = Starter(bounds.first, bounds.most)
                starters[place].start_all()
        from bushel.workers.lowering import lowered_to_workers

        engines: list[Engine] = []
        to_workers = partial(lowered_to_workers, starters=starters, engines=engines)
        made = _lowered(plan, to_workers, None, is_part)
        made.stream.wakers = [engine.close for engine in engines]
        return made
    finally:
        # Starters that were not used, as an error was raised.
        for starter in starters.values():
            starter.end()


def _lowered(
    plan: Plan,
    to_workers: "LowerToWorkers | None",
    shared: "ThreadsInTurn | None",
    is_part: bool,
) -> Lowered:
    # Imported here: building a dataset needs nothing of the engine.
    from bushel.run.build import lowered

    return lowered(plan.dealt, plan.cut, to_workers, shared=shared, is_part=is_part)
