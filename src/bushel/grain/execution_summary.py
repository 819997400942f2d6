"""`get_execution_summary`: what the steps of an iterator have done, in Grain's form."""

from dataclasses import dataclass
from typing import Any

from bushel.core.node import Node, walk
from bushel.core.places import OptionsNode, PrefetchNode, ToStreamNode, WorkersNode
from bushel.deliver.iterator import StreamIterator
from bushel.deliver.timed import TimedIterator
from bushel.errors import PlanError
from bushel.run.step_total import StepTotal


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """What one step has done."""

    id: int
    name: str
    # The `id` of the steps that it reads from.
    inputs: tuple[int, ...]
    # The share of its time that the loop waited, divided among the steps by their time.
    wait_time_ratio: float
    # Its own time, summed over threads and workers, and the longest call.
    total_processing_time_ns: int
    max_processing_time_ns: int
    # The number of records that it handled.
    num_produced_elements: int
    # The mean bytes of what it made of a record; 0 where none was measured.
    bytes_produced: int
    is_output: bool
    is_prefetch: bool


@dataclass(frozen=True, slots=True)
class ExecutionSummary:
    """What the steps of an iterator have done, by number: 0 is the last step."""

    nodes: dict[int, NodeSummary]


def get_execution_summary(iterator: Any) -> ExecutionSummary:
    """Tells what each step of an iterator has done; see also `iterator.stats()`.

    The iterator needs statistics: from `bushel.iterate`, with `ExecutionTrackingMode.STAGE_TIMING`,
    or in the debug mode.

    >>> from bushel import MapDataset, iterate
    >>> with iterate(MapDataset.range(100).map(abs).batch(4)) as iterator:
    ...     elements = len(list(iterator))
    >>> nodes = get_execution_summary(iterator).nodes
    >>> [(node.name, node.num_produced_elements) for node in nodes.values()][:2]
    [('to_iter_dataset()', 25), ('batch(4)', 25)]
    """
    from bushel.watch.stats import numbers_in  # Only for those who ask for a summary.

    stream = getattr(iterator, "_iterator", iterator)  # Of a loader's iterator.
    if not isinstance(stream, StreamIterator):
        raise PlanError(
            "`get_execution_summary` takes an iterator of a dataset or a DataLoader, and got "
            f"{type(iterator).__name__}."
        )
    if not isinstance(stream, TimedIterator):
        raise PlanError(
            "the steps of this iterator are not timed: iterate with `bushel.iterate(dataset)`, or "
            "set `execution_tracking_mode` to `STAGE_TIMING` in the options of the dataset."
        )
    with stream._alone():
        figures = stream._figures()
    assert stream._node is not None
    steps = list({id(step): step for step in map(_working, walk(stream._node))}.values())
    numbers = {id(step): number for number, step in enumerate(steps)}
    totals = [total for total in figures.steps or () if not total.waits_for]
    # What the copies of a step in lanes have done counts for the step.
    places = numbers_in(stream._node, totals)
    done: dict[tuple[int, str], list[StepTotal]] = {}
    for total in totals:
        done.setdefault((places.get(id(total.node), -1), total.node.label), []).append(total)
    waited = figures.wait_seconds / figures.elapsed_seconds if figures.elapsed_seconds else 0.0
    whole = sum(total.nanoseconds for total in totals) or 1
    nodes = {}
    for number, step in enumerate(steps):
        own = done.get((places[id(step)], step.label), [])
        nanoseconds = sum(total.nanoseconds for total in own)
        sized = sum(total.sized for total in own)
        nodes[number] = NodeSummary(
            id=number,
            name=step.label,
            inputs=tuple(numbers[id(_working(part))] for part in step.inputs),
            wait_time_ratio=waited * nanoseconds / whole,
            total_processing_time_ns=nanoseconds,
            max_processing_time_ns=max((total.longest_nanoseconds for total in own), default=0),
            num_produced_elements=sum(total.records for total in own),
            bytes_produced=round(sum(total.sized_bytes for total in own) / max(1, sized)),
            is_output=not number,
            is_prefetch=isinstance(step, (PrefetchNode, ToStreamNode, WorkersNode)),
        )
    return ExecutionSummary(nodes)


def _working(step: Node) -> Node:
    """The step; instead of options, the step that they are of."""
    while isinstance(step, OptionsNode):
        step = step.input
    return step
