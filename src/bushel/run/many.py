"""Many datasets evaluated together: the parts of a mixture, of which a block has a few each.

Each part has steps of its own, and to ask each for two or three elements would cost as much as
to ask it for a hundred. But the parts of one mixture are mostly alike: so their steps are taken
together, step by step, for the elements of all of them.

    part 0   source 0 ─ shuffle 0 ─ map f          sources      shuffles     maps
    part 1   source 1 ─ shuffle 1 ─ map f    →     read by  ─   computed  ─  f, for
    part 2   source 2 ─ shuffle 2 ─ map f          source       at once      all rows

Elements are named by two arrays: the number of the part, and the position in it. Where parts
are not alike, or have other steps than these, each is asked by itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from bushel.block import Block, Columns, merge_columns
from bushel.node import Drop, Each, Node, Order, Place, Source
from bushel.order.pattern import grouped
from bushel.positions import Keys, Positions
from bushel.run.evaluator import Evaluator, dropped, labelled

Compile: TypeAlias = Callable[[Node], Evaluator]
# Some elements of a block: their places in it, and what came of them.
Piece: TypeAlias = tuple[Keys, Block]


class Many(ABC):
    """Gives elements of several inputs."""

    @abstractmethod
    def at(self, which: Keys, positions: Positions) -> Block:
        """The elements at these positions of these inputs, up to the first that fails.

        Each has the position that it has in its own input.
        """


def compile_many(nodes: Sequence[Node], compile: Compile) -> Many:
    """What evaluates many nodes, those that are alike together."""
    by_shape: dict[tuple[type, ...], list[int]] = {}
    for number, node in enumerate(nodes):
        by_shape.setdefault(_shape_of(node), []).append(number)
    if len(by_shape) == 1:
        return _compile_alike(nodes, compile)
    groups = list(by_shape.values())
    return _Various(
        [_compile_alike([nodes[n] for n in group], compile) for group in groups], groups
    )


def _shape_of(node: Node) -> tuple[type, ...]:
    """The kinds of the steps that can be taken together."""
    shape: list[type] = []
    while not isinstance(node, Source):
        if isinstance(node, (Order, Each, Drop)):
            shape.append(type(node))
        elif not isinstance(node, Place):
            return tuple(shape)
        node = node.inputs[0]
    return (*shape, Source)


def _compile_alike(nodes: Sequence[Node], compile: Compile) -> Many:
    # A step to pass over may stand in one of them only.
    heads = [_without_places(node) for node in nodes]
    first = heads[0]
    if isinstance(first, Source):
        return _ReadMany(heads)
    if not isinstance(first, (Order, Each, Drop)) or len(heads) == 1:
        return _ByThemselves(heads, compile)
    input = _compile_alike([node.inputs[0] for node in heads], compile)
    if isinstance(first, Order):
        return _LocateMany(heads, input)
    return _ApplyMany(heads, input)


def _without_places(node: Node) -> Node:
    while isinstance(node, Place):
        node = node.inputs[0]
    return node


class _Kinds:
    """Which of many steps are alike, and can do each other's work."""

    def __init__(self, steps: Sequence[Any]) -> None:
        numbers: dict[Hashable, int] = {}
        kind_of = [numbers.setdefault(step.likeness, len(numbers)) for step in steps]
        self._kind_of = np.array(kind_of, dtype=np.int64)
        self._steps: list[Any] = []
        for step, kind in zip(steps, kind_of, strict=True):
            if kind == len(self._steps):
                self._steps.append(step)

    def done(
        self, which: Keys, positions: Positions, do: Callable[[Any, Keys | None], Block]
    ) -> Block:
        """Has each kind of step do what is to be done by it: all, where no places are given."""
        if len(self._steps) == 1:
            return do(self._steps[0], None)
        pieces = [
            (mine, do(self._steps[kind], mine)) for kind, mine in grouped(self._kind_of.take(which))
        ]
        return put_together(pieces, positions)


class _ReadMany(Many):
    def __init__(self, sources: Sequence[Any]) -> None:
        self._kinds = _Kinds(sources)

    def at(self, which: Keys, positions: Positions) -> Block:
        def read(source: Source, mine: Keys | None) -> Block:
            wanted = positions if mine is None else positions.take(mine)
            return source.fetch(source.keys(wanted), wanted)

        return self._kinds.done(which, positions, read)


class _LocateMany(Many):
    def __init__(self, orders: Sequence[Any], input: Many) -> None:
        self._orders, self._input = orders, input
        self._together = type(orders[0]).side_by_side(orders)

    def at(self, which: Keys, positions: Positions) -> Block:
        if self._together is not None and positions.dtype != object:
            located = self._together(which, positions)
        else:
            located = self._one_after_the_other(which, positions)
        return labelled(self._input.at(which, located), positions)

    def _one_after_the_other(self, which: Keys, positions: Positions) -> Positions:
        parts = [
            (mine, self._orders[number].locate(positions.take(mine)))
            for number, mine in grouped(which)
        ]
        is_far = any(located.dtype == object for _, located in parts)
        out = np.empty(len(positions), dtype=object if is_far else np.int64)
        for mine, located in parts:
            out[mine] = located
        return out


class _ApplyMany(Many):
    """Steps that change elements, or leave them out."""

    def __init__(self, steps: Sequence[Any], input: Many) -> None:
        self._kinds, self._input = _Kinds(steps), input

    def at(self, which: Keys, positions: Positions) -> Block:
        block = self._input.at(which, positions)

        def apply(step: Each | Drop, mine: Keys | None) -> Block:
            theirs = block
            if mine is not None:
                theirs = block.select(mine)
                theirs.failure = None
            return dropped(step, theirs) if isinstance(step, Drop) else step.apply(theirs)

        done = self._kinds.done(which[: len(block)], block.positions, apply)
        if done.failure is None and len(done) == len(block):
            done.failure = block.failure
        return done


class _ByThemselves(Many):
    """Steps of which each needs to be asked by itself."""

    def __init__(self, nodes: Sequence[Node], compile: Compile) -> None:
        self._inputs = [compile(node) for node in nodes]

    def at(self, which: Keys, positions: Positions) -> Block:
        return at_each(self._inputs, grouped(which), positions)


class _Various(Many):
    """Inputs that are not alike: some of this kind, some of that."""

    def __init__(self, many: Sequence[Many], members: Sequence[Sequence[int]]) -> None:
        self._many = many
        count = sum(map(len, members))
        self._group_of, self._number_of = np.empty((2, count), dtype=np.int64)
        for group, numbers in enumerate(members):
            self._group_of[numbers] = group
            self._number_of[numbers] = np.arange(len(numbers))

    def at(self, which: Keys, positions: Positions) -> Block:
        numbers = self._number_of.take(which)
        pieces = [
            (mine, self._many[group].at(numbers.take(mine), positions.take(mine)))
            for group, mine in grouped(self._group_of.take(which))
        ]
        return put_together(pieces, positions)


def at_each(
    inputs: Sequence[Evaluator], groups: Iterable[tuple[int, Keys]], positions: Positions
) -> Block:
    """The elements of several inputs, each asked for those at the places with its number."""
    pieces = [(mine, _at_or_run(inputs[number], positions.take(mine))) for number, mine in groups]
    return put_together(pieces, positions)


def _at_or_run(input: Evaluator, positions: Positions) -> Block:
    """Asks for a run where positions are one: the parts of a mixture nearly always are."""
    first, last = int(positions[0]), int(positions[-1])
    if (
        len(positions) > 1
        and last - first == len(positions) - 1
        and (np.diff(positions) == 1).all()
    ):
        return input.run(first, last + 1)
    return input.at(positions)


def put_together(pieces: Sequence[Piece], positions: Positions) -> Block:
    """Puts the elements of several blocks in the places that belong to them.

    Up to the first that failed.
    """
    end, failure = len(positions), None
    for places, block in pieces:
        if block.failure is not None and places[len(block)] < end:
            end, failure = int(places[len(block)]), block.failure
    values = _values_of(pieces, len(positions), end)
    return Block(values, positions if failure is None else positions[:end], failure)


def _values_of(pieces: Sequence[Piece], size: int, end: int) -> list[Any] | Columns:
    if len(pieces) == 1:
        values = pieces[0][1].values
        return values[:end] if isinstance(values, list) else values.part(0, end)
    if end == size:
        columns = _joined_arrays(pieces) or merge_columns(size, pieces)
        if columns is not None:
            return columns
    rows: list[Any] = [None] * size
    places = chain.from_iterable(places[: len(block)].tolist() for places, block in pieces)
    for place, row in zip(
        places, chain.from_iterable(block.rows() for _, block in pieces), strict=True
    ):
        rows[place] = row
    return rows[:end]


def _joined_arrays(pieces: Sequence[Piece]) -> Columns | None:
    """The same as `merge_columns`, in a few calls, where each block is one array."""
    arrays: list[Any] = []
    for _, block in pieces:
        values = block.values
        if not isinstance(values, Columns) or type(values.tree) is not np.ndarray:
            return None
        arrays.append(values.gather())
    first = arrays[0]
    kinds: set[Any] = {type(block.values) for _, block in pieces}
    if len(kinds) > 1 or any(
        array.dtype != first.dtype or array.shape[1:] != first.shape[1:] for array in arrays
    ):
        return None
    made = np.empty((sum(map(len, arrays)), *first.shape[1:]), dtype=first.dtype)
    made[np.concatenate([places for places, _ in pieces])] = np.concatenate(arrays)
    joined: Columns = kinds.pop()(made, None, len(made))
    return joined
