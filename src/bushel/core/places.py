"""Nodes of seeds, options, prefetch, workers, `to_iter_dataset`, and of users' own datasets."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bushel.core.block import Block
from bushel.core.frozen import frozen
from bushel.core.naming import source_name
from bushel.core.node import (
    Each,
    Fold,
    Node,
    Place,
    Source,
    failed,
    leaves_out,
    refuse_length,
)
from bushel.core.options import DatasetOptions, MultiprocessingOptions, ReadOptions, WorkersKey
from bushel.core.positions import Keys, Positions
from bushel.core.step import Step
from bushel.core.tuned_options import AUTO, BufferBounds

if TYPE_CHECKING:
    from bushel.core.ray_options import RayOptions  # Not needed for local workers.


@frozen
class SeedNode(Place):
    """Gives random steps downstream a seed to derive their own from."""

    input: Node
    seed: Any

    def describe(self) -> str:
        return ""

    @property
    def label(self) -> str:
        return f"seed({self.seed})"


@frozen
class OptionsNode(Place):
    """Attaches options to the whole pipeline."""

    input: Node
    options: DatasetOptions

    def describe(self) -> str:
        return ""

    @property
    def label(self) -> str:
        return "with_options"


class Nowhere(Place):
    """Stands in for a step that is not needed on this side."""

    __slots__ = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def length(self) -> int:
        return 0

    def describe(self) -> str:
        return ""


NOWHERE = Nowhere()


@frozen
class ToStreamNode(Place):
    """Reads a random-access dataset from its first position to its last."""

    input: Node
    read_options: ReadOptions
    allow_nones: bool

    def describe(self) -> str:
        return "to_iter_dataset(allow_nones=True)" if self.allow_nones else "to_iter_dataset()"


@frozen
class PrefetchNode(Place):
    """Pulls the stream in a thread of its own."""

    input: Node
    buffer: BufferBounds

    def describe(self) -> str:
        return ""

    @property
    def label(self) -> str:
        return f"thread_prefetch({self.buffer})"


@frozen
class WorkersNode(Place):
    """Has everything upstream evaluated by worker processes."""

    input: Node
    options: "MultiprocessingOptions | RayOptions"
    worker_init: Any
    key: WorkersKey

    def describe(self) -> str:
        return ""

    @property
    def label(self) -> str:
        here = isinstance(self.options, MultiprocessingOptions)
        method = "mp_prefetch" if here else "ray_prefetch"
        number = self.options.num_workers
        return f"{method}(num_workers={number if isinstance(number, int) else AUTO})"


@frozen
class CustomMapNode(Source):
    """A user's own random-access dataset: asked position by position."""

    dataset: Any
    parents: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parents

    def length(self) -> int:
        return len(self.dataset)

    def keys(self, positions: Positions) -> Keys:
        return positions  # How epochs continue is up to the user's dataset.

    def fetch(self, keys: Keys, positions: Positions) -> Block:
        rows: list[Any] = []
        try:
            rows.extend(map(self.dataset.__getitem__, keys.tolist()))
        except Exception as error:
            failure = failed(error, self, int(positions[len(rows)]))
            return Block(rows, positions[: len(rows)], failure)
        if len(rows) < len(positions):  # `map` takes a StopIteration for its own end.
            failure = failed(StopIteration(), self, int(positions[len(rows)]))
            return Block(rows, positions[: len(rows)], failure)
        return Block(rows, positions)

    def describe(self) -> str:
        return f"{source_name(self.dataset)}(length={len(self.dataset)})"

    @property
    def label(self) -> str:
        return source_name(self.dataset)


@frozen
class CustomStreamNode(Node):
    """A user's own stream: iterated."""

    dataset: Any
    parents: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parents

    def length(self) -> int:
        return refuse_length(self)

    def describe(self) -> str:
        return source_name(self.dataset)


def droppers(node: Node) -> Iterable[Node]:
    """The steps that may leave elements out of a dataset, up to where none is missing again."""
    level = [node]
    while level:
        yield from filter(leaves_out, level)
        level = [parent for child in level if not child.has_all for parent in child.inputs]


def is_by_position(node: Node) -> bool:
    """Whether element n of a stream is made of known positions of a random-access dataset."""
    while not isinstance(node, ToStreamNode):
        one_each = isinstance(node, (Each, Place)) or (isinstance(node, Step) and node.one_each)
        if not one_each and not (isinstance(node, Fold) and node.one_per_group):
            return False
        (node,) = node.inputs
    return node.allow_nones or not any(droppers(node.input))
