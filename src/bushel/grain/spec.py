"""What elements will look like, told without reading any."""

import functools
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bushel.batch.batch import BatchNode
from bushel.batch.rebatch import RebatchNode
from bushel.core.naming import name_of
from bushel.core.node import Choice, Drop, Each, Fold, Guard, Node, Order, Place, Zip
from bushel.core.places import CustomMapNode, CustomStreamNode
from bushel.core.step import Step
from bushel.core.tree import map_leaves
from bushel.dataset import IterDataset, MapDataset, map_node, stream_node
from bushel.errors import PlanError
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


def get_element_spec(ds: "MapDataset[Any] | IterDataset[Any]") -> Any:
    """Returns the tree of shapes and dtypes of a dataset's elements, reading nothing.

    Functions tell theirs with a method `output_spec(input_spec)` on their `transforms.Map`.

    >>> get_element_spec(MapDataset.source({"x": np.zeros((9, 3), np.float32)}).batch(2))
    {'x': ShapeDtypeStruct(shape=(None, 3), dtype=dtype('float32'))}
    """
    if isinstance(ds, MapDataset):
        return _spec(map_node(ds))
    if isinstance(ds, IterDataset):
        return _spec(stream_node(ds))
    raise TypeError(f"`get_element_spec` takes a dataset, and got a {type(ds).__name__}.")


def _spec(node: Node) -> Any:
    if isinstance(node, RangeNode):
        return ShapeDtypeStruct((), np.int64)
    if isinstance(node, ColumnsNode):
        return map_leaves(lambda array: ShapeDtypeStruct(array.shape[1:], array.dtype), node.tree)
    if isinstance(node, (CustomMapNode, CustomStreamNode)) and hasattr(
        node.dataset, "_element_spec"
    ):
        return node.dataset._element_spec
    if isinstance(node, Each):
        return _output_spec(node)
    if isinstance(node, BatchNode):
        if node.batch_fn is not None:
            return _batch_spec(node)
        size = node.batch_size if node.drop_remainder else None
        return map_leaves(
            lambda leaf: ShapeDtypeStruct((size, *leaf.shape), leaf.dtype), _spec(node.input)
        )
    if isinstance(node, RebatchNode):
        # The last one may be smaller. Grain tells the size of the others all the same.
        size = node.batch_size
        return map_leaves(
            lambda leaf: ShapeDtypeStruct((size, *leaf.shape[1:]), leaf.dtype), _spec(node.input)
        )
    if isinstance(node, InterleaveNode):
        parts = (node.datasets[number] for number in range(len(node.datasets)))
        first = next((part for part in parts if part is not None), None)
        if first is not None:
            return _spec(first)
    same = isinstance(node, Step) and node.same_elements
    if same or isinstance(node, (Order, Drop, Guard, Place, Fold)):
        return _spec(node.inputs[0])
    if isinstance(node, Choice):
        return _spec(node.inputs[0])
    if isinstance(node, Zip):
        return tuple(_spec(part) for part in node.inputs)
    raise NotImplementedError(
        f"the element spec of `{node.label}` is not known without reading a record."
    )


def _batch_spec(node: BatchNode) -> Any:
    function: Any = node.batch_fn
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "output_spec"):
        raise NotImplementedError(
            f"what `{name_of(function)}` makes of a batch cannot be told without calling it. Give "
            "it a method `output_spec(self, input_spec, batch_size, drop_remainder)`."
        )
    return function.output_spec(_spec(node.input), node.batch_size, node.drop_remainder)


def _output_spec(node: Each) -> Any:
    transform: Any = getattr(node, "transform", None)
    if transform is None:
        return _spec(node.input)
    if not hasattr(transform, "output_spec"):
        name = name_of(transform)
        raise PlanError(
            f"what `{node.label}` makes is not known: give `{name}` a method "
            "`output_spec(self, input_spec)` that returns the spec of its result."
        )
    return transform.output_spec(_spec(node.input))
