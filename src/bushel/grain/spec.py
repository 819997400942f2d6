"""`get_element_spec`: the structure of elements, found without reading any unless told to."""

import functools
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bushel.batch.batch import BatchNode
from bushel.batch.rebatch import RebatchNode
from bushel.core.naming import name_of
from bushel.core.node import Choice, Drop, Each, Fold, Guard, Node, Order, Place, Zip
from bushel.core.options import ReadOptions
from bushel.core.places import CustomMapNode, CustomStreamNode, ToStreamNode
from bushel.core.step import Step
from bushel.core.tree import map_leaves
from bushel.dataset import (
    IterDataset,
    MapDataset,
    MapNodeDataset,
    StreamNodeDataset,
    map_node,
    stream_node,
)
from bushel.errors import EmptyDatasetError, PlanError
from bushel.order.interleave import InterleaveNode
from bushel.sources.memory import ColumnsNode, RangeNode


@runtime_checkable
class ShapeDtypeStructProtocol(Protocol):
    """Anything with a shape and a dtype."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Dimensions, None where unknown."""

    @property
    def dtype(self) -> Any:
        """Element type."""


@dataclass(frozen=True, slots=True)
class ShapeDtypeStruct:
    """Shape and dtype of an array; a dimension may be None."""

    shape: tuple[int | None, ...]
    dtype: Any


def get_element_spec(ds: "MapDataset[Any] | IterDataset[Any]", *, read_one: bool = False) -> Any:
    """Returns the tree of shapes and dtypes of a dataset's elements, reading nothing unless asked.

    Functions tell theirs with a method `output_spec(input_spec)` on their `transforms.Map`.

    >>> get_element_spec(MapDataset.source({"x": np.zeros((9, 3), np.float32)}).batch(2))
    {'x': ShapeDtypeStruct(shape=(None, 3), dtype=dtype('float32'))}

    A list of objects, a file, or a function without that method cannot tell. With `read_one`
    the first element there is read, and its shapes are taken for those of all:

    >>> words = MapDataset.source([b"one", b"three"]).map(lambda word: np.zeros(4, np.int32))
    >>> get_element_spec(words.batch(2, drop_remainder=True), read_one=True)
    ShapeDtypeStruct(shape=(2, 4), dtype=dtype('int32'))

    Args:
      ds: a dataset, random-access or a stream.
      read_one: whether a step that cannot tell is asked for its first element, in this process.
    """
    if isinstance(ds, MapDataset):
        return _Specs(read_one).of(map_node(ds))
    if isinstance(ds, IterDataset):
        return _Specs(read_one).of(stream_node(ds))
    raise TypeError(f"`get_element_spec` takes a dataset, and got a {type(ds).__name__}.")


class _NotTold(PlanError, NotImplementedError):
    """A step does not tell the structure of its elements."""


@dataclass(frozen=True, slots=True)
class _Specs:
    read_one: bool

    def of(self, node: Node) -> Any:
        """The spec of the elements after a step."""
        try:
            return self._told(node)
        except _NotTold:
            if not self.read_one:
                raise
        return map_leaves(_spec_of, _first(node))

    def _told(self, node: Node) -> Any:
        if isinstance(node, RangeNode):
            return ShapeDtypeStruct((), np.int64)
        if isinstance(node, ColumnsNode):
            return map_leaves(
                lambda array: ShapeDtypeStruct(array.shape[1:], array.dtype), node.tree
            )
        if isinstance(node, (CustomMapNode, CustomStreamNode)) and hasattr(
            node.dataset, "_element_spec"
        ):
            return node.dataset._element_spec
        if isinstance(node, Each):
            return self._of_result(node)
        if isinstance(node, BatchNode):
            if node.batch_fn is not None:
                return self._of_batch(node)
            size = node.batch_size if node.drop_remainder else None
            return map_leaves(
                lambda leaf: ShapeDtypeStruct((size, *leaf.shape), leaf.dtype), self.of(node.input)
            )
        if isinstance(node, RebatchNode):
            # The last one may be smaller. Grain also returns the size of the others.
            size = node.batch_size
            return map_leaves(
                lambda leaf: ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype),
                self.of(node.input),
            )
        if isinstance(node, InterleaveNode):
            parts = (node.datasets[number] for number in range(len(node.datasets)))
            first = next((part for part in parts if part is not None), None)
            if first is not None:
                return self.of(first)
        same = isinstance(node, Step) and node.same_elements
        if same or isinstance(node, (Order, Drop, Guard, Place, Fold, Choice)):
            return self.of(node.inputs[0])
        if isinstance(node, Zip):
            return tuple(self.of(part) for part in node.inputs)
        raise _NotTold(
            f"the element spec of `{node.label}` is not known without reading a record. "
            "`get_element_spec(ds, read_one=True)` reads one."
        )

    def _of_batch(self, node: BatchNode) -> Any:
        function: Any = node.batch_fn
        while isinstance(function, functools.partial):
            function = function.func
        if not hasattr(function, "output_spec"):
            raise _NotTold(
                f"the result of `{name_of(function)}` for a batch is not known without calling it. "
                "Give it a method `output_spec(self, input_spec, batch_size, drop_remainder)`, or "
                "write `get_element_spec(ds, read_one=True)`."
            )
        return function.output_spec(self.of(node.input), node.batch_size, node.drop_remainder)

    def _of_result(self, node: Each) -> Any:
        transform: Any = getattr(node, "transform", None)
        if transform is None:
            return self.of(node.input)
        if not hasattr(transform, "output_spec"):
            name = name_of(transform)
            raise _NotTold(
                f"what `{node.label}` makes is not known: give `{name}` a method "
                "`output_spec(self, input_spec)` that returns the spec of its result, or write "
                "`get_element_spec(ds, read_one=True)`."
            )
        return transform.output_spec(self.of(node.input))


def _first(node: Node) -> Any:
    """The first element after a step, read here."""
    inline = ReadOptions(num_threads=0, prefetch_buffer_size=0)
    stream: IterDataset[Any] = (
        StreamNodeDataset(node)
        if _is_stream(node)
        else MapNodeDataset(node).to_iter_dataset(inline)
    )
    for element in stream:
        return element
    raise EmptyDatasetError(
        f"there is no element after `{node.label}`, so the structure of its elements is unknown."
    )


def _is_stream(node: Node) -> bool:
    below = [node]
    while below:
        step = below.pop()
        if isinstance(step, (ToStreamNode, CustomStreamNode, InterleaveNode)):
            return True
        below.extend(step.inputs)
    return False


def _spec_of(leaf: Any) -> ShapeDtypeStruct:
    """The structure of an element's leaf; strings and bytes have any length."""
    if isinstance(leaf, (str, bytes)):
        return ShapeDtypeStruct((), np.dtype(type(leaf)))
    return ShapeDtypeStruct(np.shape(leaf), getattr(leaf, "dtype", None) or np.asarray(leaf).dtype)
