"""The arguments of `where`, `when`, `covers`, `diff`: of a dataset or iterator, its stream."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bushel.checkpoint.code_and_files import made_with, tell_changes
from bushel.checkpoint.signed import describe_pipeline, made_of, verify
from bushel.core.frozen import frozen
from bushel.core.node import Node, walk, with_inputs
from bushel.core.options import MultiprocessingOptions
from bushel.core.state import State, copy_state
from bushel.dataset.base import Dataset
from bushel.deliver.iterator import StreamIterator
from bushel.deliver.job import process_of_job
from bushel.errors import PlanError
from bushel.lanes.deal import DealNode
from bushel.lanes.own import own_lanes
from bushel.loader.chain import Chain
from bushel.loader.iterator import DataLoaderIterator
from bushel.loader.loader import DataLoader
from bushel.sharding import ShardOptions


@frozen
class Subject:
    """A stream that a question is about."""

    # The stream as described, and dealt: with only the lanes of this host.
    described: Node
    dealt: Node
    # Extracts the position from a state, if that belongs to the stream.
    position_in: Callable[[Any], State]
    # The number of lanes, and of those that each host has.
    lanes: int | None
    lanes_of_host: int | None


def subject_of(thing: Any, hosts: int | None = None) -> Subject:
    """The stream of a dataset, loader or iterator.

    With `hosts`, the lanes of all of so many hosts; else those of this process.
    """
    if isinstance(thing, Dataset):
        return _subject(thing._stream_node(), None, hosts)
    if isinstance(thing, DataLoader):
        return _subject(Chain(thing._recipe).node(), thing, hosts)
    if isinstance(thing, DataLoaderIterator):
        return _subject(_node_of(thing._iterator), thing._data_loader, hosts)
    if isinstance(thing, StreamIterator):
        return _subject(_node_of(thing), None, hosts)
    raise TypeError(
        f"this takes a dataset, a DataLoader, or an iterator over one of them, and got a "
        f"{type(thing).__name__}: {thing!r:.100}."
    )


def _node_of(iterator: StreamIterator[Any]) -> Node:
    if iterator._node is None:
        raise TypeError(f"{iterator!r} does not tell what it iterates over.")
    return iterator._node


def _subject(node: Node, loader: Any, hosts: int | None) -> Subject:
    deals = [step for step in walk(node) if isinstance(step, DealNode)]

    def position_in(state: Any) -> State:
        if loader is not None:
            return _position_in_loader(loader, state)
        bare: State = copy_state(verify(state, describe_pipeline(node)))
        tell_changes(made_of(state), lambda: made_with(node), False)
        return bare

    if not deals:
        if hosts is not None:
            raise PlanError(
                "`hosts` tells which host has which lane, and this pipeline has no lanes: every "
                "host reads what its own pipeline says."
            )
        return Subject(node, node, position_in, None, None)
    count = hosts
    if count is None:
        shard = deals[0].shard
        count = process_of_job()[1] if shard is None else shard.shard_count
    if count < 1 or deals[0].lanes % count:
        raise PlanError(
            f"{deals[0].lanes} lanes cannot be owned by {count} hosts evenly: `hosts` must be a "
            "divisor of the number of lanes."
        )
    asked = _asked_about(node, ShardOptions(0, 1) if hosts is not None else None)
    dealt = own_lanes(asked, process_of_job, lambda timeout_s: _agree_alone)
    return Subject(node, dealt, position_in, deals[0].lanes, deals[0].lanes // count)


def _asked_about(node: Node, shard: ShardOptions | None) -> Node:
    """The same for a question: other hosts are not waited for; all lanes, or those of here."""
    if isinstance(node, DealNode):
        return replace(node, shard=shard or node.shard, agree=_agree_alone)
    # (A pipeline with lanes is no longer than calls may be nested: `own_lanes` recurses, too.)
    inputs = [_asked_about(parent, shard) for parent in node.inputs]
    if not inputs or all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    return with_inputs(node, inputs)


def _agree_alone(least: int) -> int:
    raise PlanError(
        "when the data ends depends on what the other hosts have, and they are not asked here: "
        "say `hosts=`, the number of them, to see the steps of all."
    )


def _position_in_loader(loader: Any, state: Any) -> State:
    # The same loader without workers: nothing is read, and no process is started.
    recipe = replace(loader._recipe, worker_options=MultiprocessingOptions(0))
    with DataLoaderIterator(_LoaderOfRecipe(recipe), None) as iterator:
        return iterator.position_in(state)


class _LoaderOfRecipe:
    def __init__(self, recipe: Any) -> None:
        self._recipe = recipe

    def __iter__(self) -> Any:
        return DataLoaderIterator(self, None)
