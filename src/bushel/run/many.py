"""Evaluates given positions of many datasets at once, such as a mixture's parts, step by step.

Each part has steps of its own, and evaluating two or three elements of each would cost as much as
evaluating a hundred. But the parts of one mixture are mostly alike, so one step of all parts is
evaluated at once, step by step, for the elements of all of them.

    part 0   source 0 ─ shuffle 0 ─ map f          sources      shuffles     maps
    part 1   source 1 ─ shuffle 1 ─ map f    →     read by  ─   computed  ─  f, for
    part 2   source 2 ─ shuffle 2 ─ map f          source       at once      all rows

Elements are named by two arrays: the number of the part, and the position in it. Parts that differ
from the others, or have other kinds of steps, are evaluated one by one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import chain
from operator import getitem
from typing import Any, TypeAlias

import numpy as np

from bushel.core.block import Block, Columns, merge_columns
from bushel.core.node import Choice, ChooseMany, Drop, Each, FetchMany, Node, Order, Place, Source
from bushel.core.positions import Keys, Positions, grouped, sorted_runs
from bushel.run.evaluator import Evaluator, dropped, labelled

Compile: TypeAlias = Callable[[Node], Evaluator]
# Some elements of a block: their places in it, and their values.
Piece: TypeAlias = tuple[Keys, Block]


# The most inputs, of mixtures within a mixture, that are prepared together; more would take too
# long at once.
_MOST_INPUTS = 20_000


class Many(ABC):
    """Evaluates several inputs together."""

    @abstractmethod
    def at(self, which: Keys, positions: Positions) -> Block:
        """The elements at these positions of these inputs, up to the first that fails.

        Each has the position that it has in its own input.
        """


def compile_many(nodes: Sequence[Node], compile: Compile) -> Many:
    """Makes the evaluator of many nodes, which evaluates equal ones together."""
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
    """The kinds of the steps that can be evaluated together."""
    shape: list[type] = []
    while not isinstance(node, Source):
        if isinstance(node, (Order, Each, Drop)):
            shape.append(type(node))
        elif isinstance(node, Choice):
            return (*shape, Choice)
        elif not isinstance(node, Place):
            return tuple(shape)
        node = node.inputs[0]
    return (*shape, Source)


def _compile_alike(nodes: Sequence[Node], compile: Compile) -> Many:
    # A step to skip may be in only one of the chains.
    heads = [_without_places(node) for node in nodes]
    first = heads[0]
    numbers: dict[int, int] = {}
    number_of = [numbers.setdefault(id(node), len(numbers)) for node in heads]
    if len(numbers) == 1:
        return _Same(first, compile)
    if len(numbers) < len(heads):
        # A thousand lanes of one mixture have a thousand parts in common.
        distinct = dict(zip(number_of, heads, strict=True))
        return _SharedInputs(_compile_alike(list(distinct.values()), compile), number_of)
    if isinstance(first, Source):
        return _ReadMany(heads)
    if isinstance(first, Choice) and sum(len(node.inputs) for node in heads) <= _MOST_INPUTS:
        return _ChooseMany(heads, compile)
    if not isinstance(first, (Order, Each, Drop)):
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
    """Groups of equal steps, which can do each other's work."""

    def __init__(self, steps: Sequence[Any]) -> None:
        numbers: dict[Hashable, int] = {}
        kind_of = [numbers.setdefault(step.likeness, len(numbers)) for step in steps]
        self._kind_of = np.array(kind_of, dtype=np.int64)
        # The first step of each kind. (Kinds are numbered in the order of appearance.)
        firsts = dict(zip(reversed(kind_of), reversed(steps), strict=True))
        self.steps: list[Any] = [firsts[kind] for kind in range(len(numbers))]

    def of(self, which: Keys) -> Keys:
        """The kinds of the steps with these numbers."""
        return self._kind_of.take(which)


class _ReadMany(Many):
    def __init__(self, sources: Sequence[Any]) -> None:
        self._kinds = _Kinds(sources)
        self._sources: list[Source] = self._kinds.steps
        self._lengths: Keys | None = None
        lengths = [source.length() for source in self._sources if source.wraps]
        if len(lengths) == len(self._sources) and all(lengths):
            self._lengths = np.array(lengths, dtype=np.int64)
        self._fetch_many: FetchMany | None = None
        if len({type(source) for source in self._sources}) == 1:
            self._fetch_many = type(self._sources[0]).fetch_many(self._sources)
        # The objects with the records, for sources that are read one by one anyway.
        records = [source.records for source in self._sources]
        self._records = records if all(has is not None for has in records) else None

    def at(self, which: Keys, positions: Positions) -> Block:
        if len(self._sources) == 1:
            source = self._sources[0]
            return source.fetch(source.keys(positions), positions)
        kinds = self._kinds.of(which)
        if self._lengths is None or positions.dtype == object:
            pieces = [
                (mine, self._fetched(self._sources[kind], positions.take(mine)))
                for kind, mine in grouped(kinds)
            ]
            return put_together(pieces, positions)
        keys = positions % self._lengths.take(kinds)
        if self._fetch_many is not None:
            return Block(self._fetch_many(kinds, keys), positions)
        if self._records is not None:
            rows = self._read_each(self._records, kinds, keys)
            if rows is not None:
                return Block(rows, positions)
        order, runs = sorted_runs(kinds)
        keys, wanted = keys.take(order), positions.take(order)
        pieces = []
        for kind, start, stop in runs:
            block = self._sources[kind].fetch(keys[start:stop], wanted[start:stop])
            pieces.append((order[start:stop], block))
        return put_together(pieces, positions)

    def _fetched(self, source: Source, positions: Positions) -> Block:
        return source.fetch(source.keys(positions), positions)

    def _read_each(self, records: Sequence[Any], kinds: Keys, keys: Keys) -> list[Any] | None:
        """Records of many sources, one by one; None if one fails."""
        rows: list[Any] = []
        with suppress(Exception):  # Evaluating the sources one by one will find the failed one.
            rows.extend(map(getitem, map(records.__getitem__, kinds.tolist()), keys.tolist()))
        return rows if len(rows) == len(keys) else None


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
    """Steps that change or drop elements."""

    def __init__(self, steps: Sequence[Any], input: Many) -> None:
        self._kinds, self._input = _Kinds(steps), input

    def at(self, which: Keys, positions: Positions) -> Block:
        block = self._input.at(which, positions)
        steps = self._kinds.steps
        if len(steps) == 1:
            return _applied(steps[0], block)
        order, runs = sorted_runs(self._kinds.of(which[: len(block)]))
        ordered = block.select(order)
        pieces = [
            (order[start:stop], _applied(steps[kind], ordered.part(start, stop)))
            for kind, start, stop in runs
        ]
        done = put_together(pieces, block.positions)
        if done.failure is None:
            done.failure = block.failure
        return done


def _applied(step: Each | Drop, block: Block) -> Block:
    return dropped(step, block) if isinstance(step, Drop) else step.apply(block)


class _ChooseMany(Many):
    """Orders over several inputs: mixtures of mixtures, whose inputs are evaluated together."""

    def __init__(self, choices: Sequence[Any], compile: Compile) -> None:
        self._choices = choices
        counts = [len(choice.inputs) for choice in choices]
        self._firsts = np.cumsum([0, *counts]).tolist()
        self._input = compile_many(
            [input for choice in choices for input in choice.inputs], compile
        )
        self._each = _ByThemselves(choices, compile)
        self._together: ChooseMany | None = None
        if len({type(choice) for choice in choices}) == 1:
            self._together = type(choices[0]).side_by_side(choices)
        self._first_of = np.array(self._firsts, dtype=np.int64)

    def at(self, which: Keys, positions: Positions) -> Block:
        if self._together is not None and positions.dtype != object:
            chosen, located = self._together(which, positions)
            inputs = self._first_of.take(which) + chosen
            return labelled(self._input.at(inputs, located), positions)
        order, runs = sorted_runs(which)
        wanted = positions.take(order)
        try:
            parts = [
                (self._firsts[number], *self._choices[number].locate(wanted[start:stop]))
                for number, start, stop in runs
            ]
        except Exception:  # An error of a user's selection map, to be found one by one.
            return self._each.at(which, positions)
        inputs = np.empty(len(which), dtype=np.int64)
        inputs[order] = np.concatenate([first + chosen for first, chosen, _ in parts])
        places = np.concatenate([located for _, _, located in parts])
        located = np.empty(len(which), dtype=places.dtype)
        located[order] = places
        return labelled(self._input.at(inputs, located), positions)


class _Same(Many):
    """One and the same dataset, of which lanes have different positions."""

    def __init__(self, node: Node, compile: Compile) -> None:
        self._input = compile(node)

    def at(self, which: Keys, positions: Positions) -> Block:
        return self._input.at(positions)


class _SharedInputs(Many):
    """A few datasets, each of which is several of the inputs."""

    def __init__(self, many: Many, number_of: Sequence[int]) -> None:
        self._many, self._number_of = many, np.array(number_of, dtype=np.int64)

    def at(self, which: Keys, positions: Positions) -> Block:
        return self._many.at(self._number_of.take(which), positions)


class _ByThemselves(Many):
    """Steps that have to be evaluated one by one."""

    def __init__(self, nodes: Sequence[Node], compile: Compile) -> None:
        self._inputs = Compiled(nodes, compile)

    def at(self, which: Keys, positions: Positions) -> Block:
        return at_each(self._inputs, sorted_runs(which), positions)


class Compiled(Sequence[Evaluator]):
    """Evaluators, each made when it is needed, as a block needs only a few of a thousand."""

    def __init__(self, nodes: Sequence[Node], compile: Compile) -> None:
        self._nodes, self._compile = nodes, compile
        self._made: dict[int, Evaluator] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, number: Any) -> Any:
        made = self._made.get(number)
        if made is None:
            # Two threads may both make one; either is right.
            made = self._made[number] = self._compile(self._nodes[number])
        return made


class _Various(Many):
    """Inputs of several kinds."""

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
    inputs: Sequence[Evaluator],
    groups: tuple[Keys, Sequence[tuple[int, int, int]]],
    positions: Positions,
) -> Block:
    """The elements of several inputs, each evaluated for its own run of elements."""
    order, runs = groups
    ordered = positions.take(order)
    pieces = [
        (order[start:stop], _at_or_run(inputs[number], ordered[start:stop]))
        for number, start, stop in runs
    ]
    return put_together(pieces, positions)


def _at_or_run(input: Evaluator, positions: Positions) -> Block:
    """Asks for a run if the positions are one, as those of a mixture's part nearly always are."""
    first, last = int(positions[0]), int(positions[-1])
    if (
        len(positions) > 1
        and last - first == len(positions) - 1
        and (np.diff(positions) == 1).all()
    ):
        return input.run(first, last + 1)
    return input.at(positions)


def put_together(pieces: Sequence[Piece], positions: Positions) -> Block:
    """Puts the elements of several blocks in their places.

    Up to the first that failed.
    """
    if not pieces:
        return Block([], positions)
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
    """The same as `merge_columns`, with fewer calls, if each block is one array."""
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
