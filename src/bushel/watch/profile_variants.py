"""For `profile`: checks its argument; the same pipeline with other workers, or without threads."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bushel.core.node import Node, walk, with_inputs
from bushel.core.options import MultiprocessingOptions, ReadOptions, WorkersKey
from bushel.core.places import CustomStreamNode, PrefetchNode, ToStreamNode, WorkersNode
from bushel.core.tuned_options import BufferBounds
from bushel.run.cut import HERE, WORKERS
from bushel.run.plan import Plan, steps_of

_NO_BUFFER = BufferBounds(0, 0)


def stream_of(thing: Any, who: str, or_else: str = "") -> Node:
    """The stream that a dataset or loader is when one iterates over it."""
    make = getattr(type(thing), "_stream_node", None)
    if make is None:
        raise TypeError(
            f"{who} takes a MapDataset, an IterDataset or a DataLoader{or_else}, and got a "
            f"{type(thing).__name__}."
        )
    node: Node = make(thing)
    return node


def with_workers_step(node: Node) -> Node:
    """The same stream with a step for worker processes, at its end if there is none."""
    if any(isinstance(step, WorkersNode) for step in steps_of(node)):
        return node
    return WorkersNode(node, MultiprocessingOptions(0), None, WorkersKey())


def with_workers(node: Node, workers: int) -> Node:
    """The same stream with so many worker processes wherever it may have some."""

    def change(step: Node) -> Node:
        if not isinstance(step, WorkersNode):
            return step
        options = replace(step.options, num_workers=workers)
        return replace(step, options=options, key=WorkersKey())

    return _changed(with_workers_step(node), change)


def alone(node: Node) -> Node:
    """The same stream with neither workers nor threads."""

    def change(step: Node) -> Node:
        if isinstance(step, ToStreamNode):
            return replace(step, read_options=ReadOptions(0, 0))
        # (It stays in the line, so that steps have the numbers that they have elsewhere.)
        return replace(step, buffer=_NO_BUFFER) if isinstance(step, PrefetchNode) else step

    return _changed(with_workers(node, 0), change)


def _changed(node: Node, change: Callable[[Node], Node]) -> Node:
    """Changes steps of a stream; datasets by position, and users' own streams, are as before."""
    line = []
    while True:
        line.append(node)
        if isinstance(node, (ToStreamNode, CustomStreamNode)) or len(node.inputs) != 1:
            break
        (node,) = node.inputs
    inputs = []
    if not isinstance(node, (ToStreamNode, CustomStreamNode)):
        inputs = [_changed(part, change) for part in node.inputs]
    made = with_inputs(node, inputs)
    made = change(made)
    for step in reversed(line[:-1]):
        made = change(with_inputs(step, [made]))
    return made


def places_in(planned: Plan) -> list[str]:
    """Where each step runs, in the order of `walk` over the pipeline as it is dealt."""
    places: dict[int, str] = {}
    for stretch in planned.cut.walk():
        for step in stretch.steps:
            reads = walk(step) if isinstance(step, ToStreamNode) else (step,)
            places.update((id(one), stretch.where) for one in reads)
    return [places.get(id(step), HERE) for step in walk(planned.dealt)]


def by_position_in(planned: Plan) -> list[bool]:
    """Whether each step is read by position, in the same order."""
    read = {
        id(one)
        for step in walk(planned.dealt)
        if isinstance(step, ToStreamNode)
        for one in walk(step.input)
    }
    return [id(step) in read for step in walk(planned.dealt)]


def crossings_in(planned: Plan) -> list[tuple[int, bool]]:
    """Steps after which elements go to another process, and whether that is from a worker.

    By their numbers in the same order.
    """
    index = {id(step): number for number, step in enumerate(walk(planned.dealt))}
    found = []
    for stretch in planned.cut.walk():
        if stretch.where == WORKERS:
            found.append((index[id(stretch.steps[-1])], True))
            found += [(index[id(before.steps[-1])], False) for before in stretch.inputs]
    return found
