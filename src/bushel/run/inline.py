"""Evaluates `Order`, `Each`, `Fold`, `Drop`, `Guard` by position, in blocks: the inline engine.

`compile_node(node).at(positions)` gives the block of the elements at these positions.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bushel.core.block import Block, Columns, Failure
from bushel.core.landing import Landing
from bushel.core.node import (
    Choice,
    Columnwise,
    Drop,
    Each,
    Expand,
    Fold,
    Guard,
    Node,
    OneByOne,
    Order,
    Place,
    Source,
    Zip,
    failed,
)
from bushel.core.positions import Positions, group_span, run_of
from bushel.core.room import room
from bushel.core.stack import stack
from bushel.errors import PlanError
from bushel.on_error.bad_records import note
from bushel.run.call_sizes import by_block, by_count, by_number, by_positions
from bushel.run.choose import Choose
from bushel.run.evaluator import Evaluator, dropped, labelled
from bushel.run.flatten import Flatten
from bushel.run.step_series import Series, is_of_series
from bushel.run.step_times import StepTimes
from bushel.run.zipped import Zipped
from bushel.transforms.function import collect_one

# A permutation of few positions costs mostly numpy's call overhead. So when positions are read
# one after the other, more and more of them are located at a time: at first
# `_FIRST_LOOK_AHEAD` times as many as are asked for, later up to `_FURTHEST_LOOK_AHEAD` times as
# many, and never more than `_LAST_LOOK_AHEAD`. The factors are small because there may be a
# thousand such orders, each of which keeps its located positions.
_FIRST_LOOK_AHEAD = 4
_FURTHEST_LOOK_AHEAD = 16
_LAST_LOOK_AHEAD = 1 << 15
# A permutation of up to `_SHORT` positions is computed as a whole if `1 / _PART_OF_SHORT` of it
# is wanted (see `order/permutation.py`). So then all of it is located at a time, since
# the permutation may have been discarded before the next positions are asked for.
_SHORT, _PART_OF_SHORT = 4096, 32
# The same for longer ones.
_LONGER, _PART_OF_LONGER = 1 << 14, 8
# The most steps whose evaluators call each other: each takes one or two of Python's thousand nested
# calls.
_LONGEST_NESTED = 100


def compile_node(
    node: Node, guards: list[Guard] | None = None, times: StepTimes | None = None
) -> Evaluator:
    """Makes the evaluator of a node and of all nodes upstream, by their kinds.

    Guards upstream are appended to `guards`; their index in it is their number. With `times`,
    steps are counted and timed.
    """
    guards = [] if guards is None else guards
    chain: list[Node] = []
    while not isinstance(node, Source) and len(node.inputs) == 1:
        chain.append(node)
        (node,) = node.inputs
    if isinstance(node, Source):
        evaluator: Evaluator = _Read(node, times)
    else:
        inputs = [compile_node(part, guards, times) for part in node.inputs]
        evaluator = _compile_step(node, inputs, guards, times)
    for run in _runs(chain[::-1]):
        if len(run) > 1:
            evaluator = Series(run, evaluator)
        else:
            evaluator = _compile_step(run[0], [evaluator], guards, times)
    return evaluator


def _runs(steps: Sequence[Node]) -> list[list[Node]]:
    """The steps one by one; in a long chain, neighbours that one loop can evaluate together."""
    if len(steps) <= _LONGEST_NESTED:
        return [[step] for step in steps]
    runs: list[list[Node]] = []
    for step in steps:
        if runs and is_of_series(step) and is_of_series(runs[-1][0]):
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _compile_step(
    node: Node, inputs: list[Evaluator], guards: list[Guard], times: StepTimes | None
) -> Evaluator:
    if isinstance(node, Each):
        return _Apply(node, inputs[0], times)
    if isinstance(node, Order):
        return _Locate(node, inputs[0], times)
    if isinstance(node, Fold):
        return _FoldGroups(node, inputs[0], times)
    if isinstance(node, Drop):
        return _LeaveOut(node, inputs[0], times)
    if isinstance(node, Choice):
        return Choose(node, inputs, partial(compile_node, times=times), times)
    if isinstance(node, Zip):
        return Zipped(node, inputs, partial(compile_node, times=times), times)
    if isinstance(node, Expand):
        return Flatten(node, inputs[0], bool(guards), times)
    if isinstance(node, Guard):
        guards.append(node)
        return _Stand(node, inputs[0], len(guards) - 1)
    if isinstance(node, Place):
        return inputs[0]
    raise PlanError(f"`{node.label}` cannot be read by position.")


class _Read(Evaluator):
    __slots__ = ("fetch", "source")

    def __init__(self, source: Source, times: StepTimes | None) -> None:
        self.source, self.fetch = source, source.fetch
        if times is not None:
            times.look_at(source, self, "fetch", by_positions(1))

    def at(self, positions: Positions) -> Block:
        return self.fetch(self.source.keys(positions), positions)

    @property
    def reads_later(self) -> bool:
        return self.source.reads_later


class _Apply(Evaluator):
    __slots__ = ("_apply", "_collect", "input", "node")

    def __init__(self, node: Each, input: Evaluator, times: StepTimes | None) -> None:
        self.node, self._apply, self._collect, self.input = node, node.apply, collect_one, input
        if times is not None:
            times.look_at(node, self, "_apply", by_block(0))
            times.look_at(node, self, "_collect", by_positions(3))

    def at(self, positions: Positions) -> Block:
        return self._apply(self.input.at(positions))

    def run(self, start: int, stop: int) -> Block:
        return self._apply(self.input.run(start, stop))

    def landed(self, start: int, stop: int, landing: Landing) -> Block:
        """The same; copies the large arrays of elements into `landing` as they are made."""
        block = self.input.run(start, stop)
        room.landing = landing
        try:
            return self._apply(block)
        finally:
            room.landing = None

    @property
    def prefers_on_demand(self) -> bool:
        return isinstance(self.node, OneByOne) and self.input.prefers_on_demand

    def on_demand(self, start: int, stop: int) -> Iterator[Any] | None:
        made = self.input.on_demand(start, stop)
        return None if made is None else self._changed(made, run_of(start, stop))

    def _changed(self, made: Iterator[Any], positions: Positions) -> Iterator[Any]:
        node: OneByOne = self.node  # type: ignore[assignment]
        results, skips_none = node.results, node.skips_none
        index = 0
        for row in made:
            index += 1
            if row is None and skips_none:
                yield None
                continue
            # (`self._collect` is looked up each time: statistics replace it for some calls.)
            out, failure = self._collect(node, results, row, positions[index - 1 : index])
            if failure is not None:
                raise failure.release()
            del row  # No reference is kept while the user works with the element.
            yield out.pop()


class _Locate(Evaluator):
    """Evaluates an order. For runs, positions are located ahead, and kept."""

    __slots__ = ("_input", "_kept", "_locate", "_node", "_read")

    def __init__(self, node: Order, input: Evaluator, times: StepTimes | None) -> None:
        self._node, self._input, self._locate = node, input, node.locate
        if times is not None:
            times.look_at(node, self, "_locate", by_positions(0))
        self._read = input if isinstance(input, _Read) else None
        self._kept: tuple[int, int, Positions] = (0, 0, np.empty(0, dtype=np.int64))

    def at(self, positions: Positions) -> Block:
        return labelled(self._input.at(self._locate(positions)), positions)

    def run(self, start: int, stop: int) -> Block:
        if not self._node.costly:
            run = self._node.locate_run(start, stop)
            positions = run_of(start, stop)
            if run is None:
                return self.at(positions)
            return labelled(self._input.run(*run), positions)
        first, end, located = self._kept
        if start < first or stop > end:
            first, end, located = self._kept = self._look_ahead(start, stop)
        located = located[start - first : stop - first]
        positions = run_of(start, stop)
        if self._read is not None:
            return self._read.fetch(located, positions)
        return labelled(self._input.at(located), positions)

    @property
    def reads_later(self) -> bool:
        return self._input.reads_later

    def _look_ahead(self, start: int, stop: int) -> tuple[int, int, Positions]:
        # Only if this run continues the last one; a separate run may be the only one. Twice as
        # far each time, but not into the next epoch or window: locating many short ones would
        # cost more than it saves.
        first, end, located = self._kept
        goes_on = first < start <= end
        reach = 0
        if goes_on:
            size = stop - start
            reach = max(_FIRST_LOOK_AHEAD * size, 2 * (end - first))
            reach = min(reach, _FURTHEST_LOOK_AHEAD * size, _LAST_LOOK_AHEAD)
        begin = end if goes_on else start
        stretch = max(1, self._node.stretch)
        part = _PART_OF_SHORT if stretch <= _SHORT else _PART_OF_LONGER
        if stretch <= _LONGER and part * reach >= stretch:
            reach = stretch
        stretch_end = min(((stop - 1) // stretch + 1) * stretch, sys.maxsize)
        # From `start`, not from `begin`: blocks may become smaller.
        end = max(stop, min(start + reach, stretch_end))
        further = self._locate(run_of(begin, end))
        if self._read is not None:
            further = self._read.source.keys(further)
        if begin > start:
            further = np.concatenate([located[start - first :], further])
        return start, end, further


class _FoldGroups(Evaluator):
    """Evaluates a fold with one element for each group."""

    __slots__ = (
        "_changes",
        "_fold",
        "_fold_all",
        "_fold_one",
        "_groups",
        "_input",
        "_length",
        "_made_by",
        "_node",
        "_size",
        "_table",
    )

    def __init__(self, node: Fold, input: Evaluator, times: StepTimes | None) -> None:
        if not node.one_per_group:
            raise PlanError(f"`{node.label}` is a step of streams; it has no random access.")
        self._node, self._input = node, input
        self._size, self._fold = node.group_size, node.fold
        self._fold_all, self._fold_one = _folded, _folded_one
        self._length, self._groups = node.input.length(), node.length()
        # The step before, if it makes elements one by one, only for this fold.
        self._made_by = input if isinstance(input, _Apply) and input.node.one_by_one else None
        # Maps of columns between a table and this step, which can be done group by group.
        self._changes: list[_Change] = []
        self._table = input
        while isinstance(self._table, _Apply) and isinstance(self._table.node, Columnwise):
            self._changes.insert(0, _Change(self._table.node, times))
            self._table = self._table.input
        if times is not None:
            times.look_at(node, self, "_fold", by_number(1))
            times.look_at(node, self, "_fold_all", by_positions(4))
            times.look_at(node, self, "_fold_one", by_positions(3))

    def at(self, positions: Positions) -> Block:
        numbers = positions.tolist()
        spans = [group_span(number, self._size, self._length, self._groups) for number in numbers]
        runs = [run_of(*span) for span in spans]
        block = self._input.at(
            runs[0] if len(runs) == 1 else np.concatenate([positions[:0], *runs])
        )
        sizes = [stop - start for start, stop in spans]
        return self._fold_all(self._node, block, numbers, sizes, positions)

    def run(self, start: int, stop: int) -> Block:
        size, groups = self._size, self._groups
        if not groups:
            return super().run(start, stop)
        # Whole groups of one epoch are a run of the input, too.
        epoch = start // groups
        first = (start - epoch * groups) * size
        last = first + (stop - start) * size
        if last > self._length:
            return super().run(start, stop)
        shift = epoch * self._length
        positions = run_of(start, stop)
        landing = None if self._made_by is None else self._node.landing(last - first)
        if self._made_by is None or landing is None:
            block = self._input.run(first + shift, last + shift)
            return self._folded_run(block, start, positions)
        block = self._made_by.landed(first + shift, last + shift, landing)
        room.landed = landing
        try:
            return self._folded_run(block, start, positions)
        finally:
            room.landed = None

    def _folded_run(self, block: Block, start: int, positions: Positions) -> Block:
        if len(positions) == 1 and block.failure is None:
            return self._fold_one(self._node, block.values, start, positions)
        numbers, sizes = range(start, start + len(positions)), [self._size] * len(positions)
        return self._fold_all(self._node, block, numbers, sizes, positions)

    @property
    def prefers_on_demand(self) -> bool:
        return self._groups > 0 and self._table.reads_later

    def on_demand(self, start: int, stop: int) -> Iterator[Any] | None:
        table = self._some_rows(start, stop)
        return None if table is None else self._made(table, start, stop)

    def _some_rows(self, start: int, stop: int) -> Columns | None:
        """The rows of some groups from `start` on, as columns; None if they are not columns."""
        size, groups = self._size, self._groups
        epoch = start // groups
        first = (start - epoch * groups) * size
        count = min(stop - start, (self._length - first) // size, max(1, _LAST_LOOK_AHEAD // size))
        shift = epoch * self._length + first
        block = self._table.run(shift, shift + count * size)
        if block.failure is not None or not isinstance(block.values, Columns) or not count:
            return None
        return block.values

    def _made(self, table: Columns, number: int, stop: int) -> Iterator[Any]:
        size, changes = self._size, self._changes
        while True:
            for start in range(0, len(table), size):
                values: list[Any] | Columns = table.part(start, start + size)
                try:
                    for change in changes:
                        columns = stack(values) if isinstance(values, list) else values.gather()
                        # (`apply` is looked up each time: statistics replace it for some calls.)
                        values = change.apply(columns, size)
                        del columns
                    made = list(self._fold(values, number))
                except Exception as error:
                    if not changes:
                        raise failed(error, self._node, number).release() from None
                    # Evaluates the group again, element by element, to find the one that failed.
                    block = self.run(number, number + 1)
                    if block.failure is not None:
                        raise block.failure.release() from None
                    made = block.rows()
                del values  # No reference is kept while the user works with the element.
                number += 1
                yield made.pop()
            try:
                further = self._some_rows(number, stop) if number < stop else None
            except Exception:
                further = None  # The next pull raises it.
            if further is None:
                return
            table = further


class _Change:
    """A map of columns, done group by group."""

    __slots__ = ("apply",)

    def __init__(self, node: Columnwise, times: StepTimes | None) -> None:
        self.apply = node.change
        if times is not None:
            times.look_at(node, self, "apply", by_count(1))


def _folded_one(
    node: Fold, values: list[Any] | Columns, number: int, positions: Positions
) -> Block:
    # The batch is so large that the block is one batch: nothing to cut.
    try:
        return Block(list(node.fold(values, number)), positions)
    except Exception as error:
        return Block([], positions[:0], failed(error, node, number))


def _folded(
    node: Fold,
    block: Block,
    numbers: Sequence[int],
    sizes: Sequence[int],
    positions: Positions,
) -> Block:
    values, available, fold = block.values, len(block), node.fold
    out: list[Any] = []
    failure: Failure | None = None
    group: list[Any] | Columns
    stop = 0
    for number, size in zip(numbers, sizes, strict=True):
        start, stop = stop, stop + size
        if stop > available:
            failure = block.failure
            break
        try:
            if isinstance(values, list):
                group = values[start:stop]
            else:
                group = values.part(start, stop)
            out.extend(fold(group, number))
        except Exception as error:
            failure = failed(error, node, number)
            break
    return Block(out, positions if len(out) == len(positions) else positions[: len(out)], failure)


class _LeaveOut(Evaluator):
    """Evaluates a drop: puts None in the place of each dropped element."""

    __slots__ = ("_dropped", "_input", "_node")

    def __init__(self, node: Drop, input: Evaluator, times: StepTimes | None) -> None:
        self._node, self._input, self._dropped = node, input, dropped
        if times is not None:
            times.look_at(node, self, "_dropped", by_block(1))

    def at(self, positions: Positions) -> Block:
        return self._dropped(self._node, self._input.at(positions))

    def run(self, start: int, stop: int) -> Block:
        return self._dropped(self._node, self._input.run(start, stop))


class _Stand(Evaluator):
    """Evaluates a guard: replaces elements that fail."""

    __slots__ = ("_input", "_node", "_number")

    def __init__(self, node: Guard, input: Evaluator, number: int) -> None:
        self._node, self._input, self._number = node, input, number

    def at(self, positions: Positions) -> Block:
        block = self._input.at(positions)
        if block.failure is None:
            return block
        return self._mended(block, positions)

    def run(self, start: int, stop: int) -> Block:
        block = self._input.run(start, stop)
        if block.failure is None:
            return block
        return self._mended(block, run_of(start, stop))

    def _mended(self, block: Block, positions: Positions) -> Block:
        """Goes on after a failure, with one element at first and twice as many each time."""
        rows: list[Any] = []
        ahead = 1
        while True:
            rows += block.rows()
            failure = block.failure
            if failure is not None:
                error, position = failure.error, int(positions[len(rows)])
                if error is None or not self._node.catches(error):
                    return Block(rows, positions[: len(rows)], failure)
                error = failure.release()
                try:
                    element = self._node.stand_in(error)
                except Exception as own:
                    failure = failed(own, self._node, position)
                    return Block(rows, positions[: len(rows)], failure)
                note(self._node, self._number, position, error)
                rows.append(element)
                ahead = 1
            if len(rows) == len(positions):
                return Block(rows, positions)
            block = self._input.at(positions[len(rows) : len(rows) + ahead])
            ahead *= 2
