"""Wraps steps in a worker so that they note what they do, for blame and hang reports.

In a worker every step notes, once a block, that it begins. When a worker has died of a task, the
task is done again carefully: element by element, each noted before it is processed.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from bushel.core.block import Block, Columns, Failure, join
from bushel.core.frozen import frozen
from bushel.core.landing import Landing
from bushel.core.node import ONE_LANE, Drop, Each, Expand, Fold, Node, Source
from bushel.core.positions import Keys, Positions
from bushel.core.room import made_in
from bushel.errors import FatalElementError

# Called with the node's number, in careful mode with position and key; and when the step is done,
# with `BETWEEN`, the number of its records, no key, and what it made, which may be measured.
Note = Callable[..., None]
BETWEEN = -1
T = TypeVar("T")


class _Named:
    """A step that has the name of the step that it watches."""

    __slots__ = ()
    node: Node
    carefully: bool

    @property
    def likeness(self) -> Hashable:
        # A step that may have to be named is evaluated by itself, not together with others.
        return self if self.carefully else ("watched", self.node.likeness)

    def describe(self) -> str:
        return self.node.describe()

    @property
    def label(self) -> str:
        return self.node.label


@frozen
class WatchedSource(_Named, Source):
    """A source with notes."""

    node: Source
    number: int
    note: Note
    carefully: bool

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.node.inputs

    @property
    def at_a_time(self) -> int:
        return self.node.at_a_time

    def length(self) -> int:
        return self.node.length()

    def keys(self, positions: Positions) -> Keys:
        return self.node.keys(positions)

    def fetch(self, keys: Keys, positions: Positions) -> Block:
        if not self.carefully or not len(keys):
            self.note(self.number)
            block = self.node.fetch(keys, positions)
            self.note(BETWEEN, len(positions), "", block)
            return block

        def fetch_one(index: int) -> Block:
            self.note(self.number, int(positions[index]), repr(keys[index].item()))
            return self.node.fetch(keys[index : index + 1], positions[index : index + 1])

        return _one_by_one(fetch_one, len(keys), self.note)


@frozen
class WatchedEach(_Named, Each):
    """An Each with notes."""

    node: Each
    input: Node
    number: int
    note: Note
    carefully: bool
    uses_positions: bool = False
    one_by_one: bool = False
    counter: str = "counter"
    lane: tuple[int, int] = ONE_LANE

    def apply(self, block: Block) -> Block:
        if not self.carefully or not len(block):
            self.note(self.number)
            count = len(block)
            block = self.node.apply(block)
            self.note(BETWEEN, count, "", block)
            return block

        def apply_to_one(index: int) -> Block:
            self.note(self.number, int(block.positions[index]))
            one = block.part(index, index + 1)
            if index == len(block) - 1:
                one.failure = block.failure
            return self.node.apply(one)

        return _one_by_one(apply_to_one, len(block), self.note)


@frozen
class WatchedDrop(_Named, Drop):
    """A Drop with notes."""

    node: Drop
    input: Node
    number: int
    note: Note
    carefully: bool

    def keep(self, rows: Sequence[Any], positions: Positions) -> tuple[list[bool], Failure | None]:
        return _in_parts(self, self.node.keep, rows, positions)


@frozen
class WatchedExpand(_Named, Expand):
    """An Expand with notes."""

    node: Expand
    input: Node
    number: int
    note: Note
    carefully: bool

    @property
    def fan_out(self) -> int:
        return self.node.fan_out

    def expand(
        self, rows: Sequence[Any], positions: Positions
    ) -> tuple[list[Sequence[Any]], Failure | None]:
        return _in_parts(self, self.node.expand, rows, positions)


@frozen
class WatchedFold(_Named, Fold):
    """A Fold with notes."""

    node: Fold
    input: Node
    number: int
    note: Note
    # Empty, or the arena in which batches are made.
    arena: list[Any]
    one_per_group: bool = True

    @property
    def group_size(self) -> int:
        return self.node.group_size

    @property
    def drops_short_group(self) -> bool:
        return self.node.drops_short_group

    def landing(self, total: int) -> Landing | None:
        landing = self.node.landing(total)
        if landing is not None and self.arena:
            if threading.current_thread() is not threading.main_thread():
                # A prefetching thread may still run it when the task has ended, and its arena is
                # gone.
                return None
            landing.made_in(self.arena[0].allocate)
        return landing

    def fold(self, group: list[Any] | Columns, number: int) -> Sequence[Any]:
        self.note(self.number, number)
        if self.arena:
            # Only the batch, not its elements: the user's functions may keep those.
            with made_in(self.arena[0].allocate):
                folded = self.node.fold(group, number)
        else:
            folded = self.node.fold(group, number)
        self.note(BETWEEN, 1, "", list(folded))
        return folded


def _one_by_one(make: Callable[[int], Block], count: int, note: Note) -> Block:
    """Joins blocks of one element each, up to the first that fails."""
    blocks: list[Block] = []
    for index in range(count):
        try:
            one = make(index)
        except FatalElementError as error:
            one = Block([], np.empty(0, dtype=np.int64), _untouched(error))
        note(BETWEEN, 1)
        if isinstance(one.values, Columns):
            one.values = one.rows()
        blocks.append(one)
        if one.failure is not None:
            break
    return join(blocks)


def _untouched(error: FatalElementError) -> Failure:
    """The failure in place of an element that is not touched; it has no frames."""
    return Failure(error.with_traceback(None))


def _in_parts(
    step: WatchedDrop | WatchedExpand,
    function: Callable[[Sequence[Any], Positions], tuple[list[T], Failure | None]],
    rows: Sequence[Any],
    positions: Positions,
) -> tuple[list[T], Failure | None]:
    """Calls a function of rows: once for all of them, or in careful mode one by one."""
    alone = step.carefully and len(rows) > 0
    size = 1 if alone else max(1, len(rows))
    results: list[T] = []
    for start in range(0, max(1, len(rows)), size):
        places = positions[start : start + size]
        try:
            step.note(step.number, int(places[0]) if alone else -1)
        except FatalElementError as error:
            return results, _untouched(error)
        some, failure = function(rows[start : start + size], places)
        made: Any = some[:1] if isinstance(step, WatchedExpand) else [rows[start : start + 1]]
        step.note(BETWEEN, len(places), "", [row for part in made for row in part[:1]])
        results.extend(some)
        if failure is not None:
            return results, failure
    return results, None


class Watch:
    """Makes watched copies of nodes, and numbers them in the order in which it meets them."""

    def __init__(self, note: Note, carefully: bool, last: Node | None, arena: list[Any]) -> None:
        """`last` is the batch that is sent, and `arena` has the memory to make it in."""
        self._note, self._carefully = note, carefully
        self._last, self._arena = last, arena
        self._made: dict[int, Node] = {}

    def tree(self, node: Node, numbers: dict[int, int]) -> Node:
        """Watches a node and everything upstream of it; a node met twice stays one node."""
        # From the source on, as a chain may be longer than calls may be nested.
        chain = [node]
        while not isinstance(chain[-1], Source) and len(chain[-1].inputs) == 1:
            chain.append(chain[-1].inputs[0])
        for step in reversed(chain):
            if id(step) not in self._made:
                made = self.step(step, numbers[id(step)], self._upstream(step, numbers))
                self._made[id(step)] = made
        return self._made[id(node)]

    def _upstream(self, node: Node, numbers: dict[int, int]) -> Node:
        if isinstance(node, Source) or not node.inputs:
            return node
        names = {field.name for field in fields(node)}  # type: ignore[arg-type]
        if "input" in names:
            made = self._made[id(node.inputs[0])]
            return replace(node, input=made)  # type: ignore[type-var]
        if "parts" in names:
            parts = tuple(self.tree(part, numbers) for part in node.inputs)
            return replace(node, parts=parts)  # type: ignore[type-var]
        return node

    def step(self, original: Node, number: int, node: Node) -> Node:
        """Watches one step, whatever is upstream of it."""
        note, carefully = self._note, self._carefully
        if isinstance(node, Source):
            return WatchedSource(node, number, note, carefully)
        if isinstance(node, Each):
            return WatchedEach(
                node,
                node.input,
                number,
                note,
                carefully,
                node.uses_positions,
                node.one_by_one,
                node.counter,
                node.lane,
            )
        if isinstance(node, Drop):
            return WatchedDrop(node, node.input, number, note, carefully)
        if isinstance(node, Expand):
            return WatchedExpand(node, node.input, number, note, carefully)
        if isinstance(node, Fold):
            arena = self._arena if original is self._last else []
            return WatchedFold(node, node.input, number, note, arena, node.one_per_group)
        return node
