"""Evaluation by position, a block at a time: the fast path of what `run/definition.py` defines.

`compile_node(node).at(positions)` gives the block of the elements at these positions.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
from bushel.on_error.records import note, pass_on, taking_notes
from bushel.run.choose import Choose
from bushel.run.evaluator import Evaluator, dropped, labelled
from bushel.run.series import Series, is_of_series
from bushel.run.zipped import Zipped
from bushel.transforms.function import collect_one

# A permutation of few positions costs mostly numpy's call overhead. When positions are read
# one after the other, more and more of them are therefore located at a time: at first
# `_FIRST_LOOK_AHEAD` times as many as are asked for. There may be a thousand such orders, each
# asked for a few positions at a time, so what is kept of one stays in proportion to that.
_FIRST_LOOK_AHEAD = 4
_FURTHEST_LOOK_AHEAD = 16
_LAST_LOOK_AHEAD = 1 << 15
# What is so short is ordered as a whole, if this part of it is wanted (see `order/permutation.py`);
# and whether that was kept by then, nobody knows.
_SHORT, _PART_OF_SHORT = 4096, 32
# Each step of a chain is a call or two within that of the next one. Python allows a thousand.
_LONGEST_NESTED = 100


def compile_node(node: Node, guards: list[Guard] | None = None) -> Evaluator:
    """Makes the evaluator of a node, asking once which kind each node upstream is.

    `guards` gets those that were met; the place of one in it is its number.
    """
    guards = [] if guards is None else guards
    chain: list[Node] = []
    while not isinstance(node, Source) and len(node.inputs) == 1:
        chain.append(node)
        (node,) = node.inputs
    if isinstance(node, Source):
        evaluator: Evaluator = _Read(node)
    else:
        evaluator = _compile_step(node, [compile_node(p, guards) for p in node.inputs], guards)
    for run in _runs(chain[::-1]):
        if len(run) > 1:
            evaluator = Series(run, evaluator)
        else:
            evaluator = _compile_step(run[0], [evaluator], guards)
    return evaluator


def _runs(steps: Sequence[Node]) -> list[list[Node]]:
    """The steps, and such as go together, where they are more than calls had better be nested."""
    if len(steps) <= _LONGEST_NESTED:
        return [[step] for step in steps]
    runs: list[list[Node]] = []
    for step in steps:
        if runs and is_of_series(step) and is_of_series(runs[-1][0]):
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _compile_step(node: Node, inputs: list[Evaluator], guards: list[Guard]) -> Evaluator:
    if isinstance(node, Each):
        return _Apply(node, inputs[0])
    if isinstance(node, Order):
        return _Locate(node, inputs[0])
    if isinstance(node, Fold):
        return _Group(node, inputs[0])
    if isinstance(node, Drop):
        return _Filter(node, inputs[0])
    if isinstance(node, Choice):
        return Choose(node, inputs, compile_node)
    if isinstance(node, Zip):
        return Zipped(node, inputs, compile_node)
    if isinstance(node, Expand):
        return _Flatten(node, inputs[0], bool(guards))
    if isinstance(node, Guard):
        guards.append(node)
        return _Stand(node, inputs[0], len(guards) - 1)
    if isinstance(node, Place):
        return inputs[0]
    raise PlanError(f"`{node.label}` cannot be read by position.")


class _Read(Evaluator):
    __slots__ = ("source",)

    def __init__(self, source: Source) -> None:
        self.source = source

    def at(self, positions: Positions) -> Block:
        return self.source.fetch(self.source.keys(positions), positions)

    @property
    def reads_later(self) -> bool:
        return self.source.reads_later


class _Apply(Evaluator):
    __slots__ = ("_apply", "input", "node")

    def __init__(self, node: Each, input: Evaluator) -> None:
        self.node, self._apply, self.input = node, node.apply, input

    def at(self, positions: Positions) -> Block:
        return self._apply(self.input.at(positions))

    def run(self, start: int, stop: int) -> Block:
        return self._apply(self.input.run(start, stop))

    def landed(self, start: int, stop: int, landing: Landing) -> Block:
        """The same, where large arrays are put as soon as they are made."""
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
            out, failure = collect_one(node, results, row, positions[index - 1 : index])
            if failure is not None:
                raise failure.release()
            del row  # While the user works, nothing is kept but what the user has.
            yield out.pop()


class _Locate(Evaluator):
    """An order. Runs are located far ahead, and what is kept is replaced as a whole."""

    __slots__ = ("_input", "_kept", "_node", "_source")

    def __init__(self, node: Order, input: Evaluator) -> None:
        self._node, self._input = node, input
        self._source = input.source if isinstance(input, _Read) else None
        self._kept: tuple[int, int, Positions] = (0, 0, np.empty(0, dtype=np.int64))

    def at(self, positions: Positions) -> Block:
        return labelled(self._input.at(self._node.locate(positions)), positions)

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
        if self._source is not None:
            return self._source.fetch(located, positions)
        return labelled(self._input.at(located), positions)

    @property
    def reads_later(self) -> bool:
        return self._input.reads_later

    def _look_ahead(self, start: int, stop: int) -> tuple[int, int, Positions]:
        # Only where the last run goes on; a run on its own is perhaps the only one. Twice as
        # far each time, but not into the next epoch or window: many short ones would cost more
        # than they save.
        first, end, located = self._kept
        goes_on = first < start <= end
        reach = 0
        if goes_on:
            size = stop - start
            reach = max(_FIRST_LOOK_AHEAD * size, 2 * (end - first))
            reach = min(reach, _FURTHEST_LOOK_AHEAD * size, _LAST_LOOK_AHEAD)
        begin = end if goes_on else start
        stretch = max(1, self._node.stretch)
        if stretch <= _SHORT and _PART_OF_SHORT * reach >= stretch:
            reach = stretch
        stretch_end = min(((stop - 1) // stretch + 1) * stretch, sys.maxsize)
        # Counted from what was asked for before: how large blocks are goes by the clock.
        end = max(stop, min(start + reach, stretch_end))
        further = self._node.locate(run_of(begin, end))
        if self._source is not None:
            further = self._source.keys(further)
        if begin > start:
            further = np.concatenate([located[start - first :], further])
        return start, end, further


class _Group(Evaluator):
    """A fold with one element for each group."""

    __slots__ = (
        "_changes",
        "_fold",
        "_groups",
        "_input",
        "_length",
        "_made_by",
        "_node",
        "_size",
        "_table",
    )

    def __init__(self, node: Fold, input: Evaluator) -> None:
        if not node.one_per_group:
            raise PlanError(f"`{node.label}` is a step of streams; it has no random access.")
        self._node, self._input = node, input
        self._size, self._fold = node.group_size, node.fold
        self._length, self._groups = node.input.length(), node.length()
        # What makes elements one by one, of which nothing becomes but this.
        self._made_by = input if isinstance(input, _Apply) and input.node.one_by_one else None
        # Maps of columns between a table and this step can as well be done group by group.
        self._changes: list[Columnwise] = []
        self._table = input
        while isinstance(self._table, _Apply) and isinstance(self._table.node, Columnwise):
            self._changes.insert(0, self._table.node)
            self._table = self._table.input

    def at(self, positions: Positions) -> Block:
        numbers = positions.tolist()
        spans = [group_span(number, self._size, self._length, self._groups) for number in numbers]
        runs = [run_of(*span) for span in spans]
        block = self._input.at(
            runs[0] if len(runs) == 1 else np.concatenate([positions[:0], *runs])
        )
        return self._folded(block, numbers, [stop - start for start, stop in spans], positions)

    def run(self, start: int, stop: int) -> Block:
        size, groups = self._size, self._groups
        if not groups:
            return super().run(start, stop)
        # Whole groups of one epoch are neighbours in the input too.
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
            return self._folded_one(block.values, start, positions)
        numbers = range(start, start + len(positions))
        return self._folded(block, numbers, [self._size] * len(positions), positions)

    @property
    def prefers_on_demand(self) -> bool:
        return self._groups > 0 and self._table.reads_later

    def on_demand(self, start: int, stop: int) -> Iterator[Any] | None:
        size, groups = self._size, self._groups
        epoch = start // groups
        first = (start - epoch * groups) * size
        count = min(stop - start, (self._length - first) // size)
        shift = epoch * self._length + first
        block = self._table.run(shift, shift + count * size)
        if block.failure is not None or not isinstance(block.values, Columns) or not count:
            return None
        return self._made(block.values, range(start, start + count))

    def _made(self, table: Columns, numbers: Sequence[int]) -> Iterator[Any]:
        size, fold, changes = self._size, self._fold, self._changes
        stop = 0
        for number in numbers:
            start, stop = stop, stop + size
            values: list[Any] | Columns = table.part(start, stop)
            try:
                for node in changes:
                    columns = stack(values) if isinstance(values, list) else values.gather()
                    values = node.change(columns, size)
                    del columns
                made = list(fold(values, number))
            except Exception as error:
                if not changes:
                    raise failed(error, self._node, number).release() from None
                # Once more, the slow way, which knows the element that failed.
                block = self.run(number, number + 1)
                if block.failure is not None:
                    raise block.failure.release() from None
                made = block.rows()
            del values  # While the user works, nothing is kept but what the user has.
            yield made.pop()

    def _folded_one(self, values: list[Any] | Columns, number: int, positions: Positions) -> Block:
        # Batches so large that a block is one of them: nothing to cut.
        try:
            return Block(list(self._fold(values, number)), positions)
        except Exception as error:
            return Block([], positions[:0], failed(error, self._node, number))

    def _folded(
        self, block: Block, numbers: Sequence[int], sizes: Sequence[int], positions: Positions
    ) -> Block:
        values, available = block.values, len(block)
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
                out.extend(self._fold(group, number))
            except Exception as error:
                failure = failed(error, self._node, number)
                break
        return Block(
            out, positions if len(out) == len(positions) else positions[: len(out)], failure
        )


class _Filter(Evaluator):
    """Puts None in the place of each element that is left out."""

    __slots__ = ("_input", "_node")

    def __init__(self, node: Drop, input: Evaluator) -> None:
        self._node, self._input = node, input

    def at(self, positions: Positions) -> Block:
        return dropped(self._node, self._input.at(positions))

    def run(self, start: int, stop: int) -> Block:
        return dropped(self._node, self._input.run(start, stop))


class _Stand(Evaluator):
    """Puts something else in the place of elements that fail."""

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
        """Goes on after what fails: with one element, and with twice as many each time."""
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


class _Flatten(Evaluator):
    """Gives each element as many places as it may fill; the rest of them are None."""

    __slots__ = ("_guarded", "_input", "_node", "_rest")

    def __init__(self, node: Expand, input: Evaluator, guarded: bool) -> None:
        """`guarded` says that there may be bad records in the input."""
        self._node, self._input, self._guarded = node, input, guarded
        # The position after the last run, and what comes there of the same element.
        self._rest: tuple[int, list[Any]] = (0, [])

    def run(self, start: int, stop: int) -> Block:
        # A run may be shorter than what is made of one element, which is then made once for
        # several runs.
        behind, rest = self._rest
        size = stop - start
        rows = rest[:size] if behind == start else []
        rest = rest[len(rows) :]
        failure: Failure | None = None
        if len(rows) < size:
            fan_out = self._node.fan_out
            block = self.at(run_of(start + len(rows), -(-stop // fan_out) * fan_out))
            made = [*rows, *block.rows()]
            rows, rest = made[:size], made[size:]
            failure = block.failure if len(rows) < size else None
        self._rest = (stop, rest if failure is None else [])
        return Block(rows, run_of(start, start + len(rows)), failure)

    def at(self, positions: Positions) -> Block:
        node, fan_out = self._node, self._node.fan_out
        # Not `np.divmod`, which knows no positions beyond 64 bits.
        inner, places = positions // fan_out, positions % fan_out
        # Each element once, in the order in which they are asked for: one that fails must
        # not stand in the way of those before it.
        distinct, first_places, which = np.unique(inner, return_index=True, return_inverse=True)
        order = first_places.argsort()
        ranks = order.argsort()
        which = ranks.take(which)
        if self._guarded:
            counted = np.isin(distinct, inner[places == 0])
            block = self._noted_once(distinct.take(order), counted.take(order))
        else:
            block = self._input.at(distinct.take(order))
        rows = block.rows()
        present = [index for index, row in enumerate(rows) if row is not None]
        sequences, failure = node.expand([rows[i] for i in present], block.positions[present])
        made: dict[int, Any] = dict(zip(present, sequences, strict=False))
        end_of_input = len(rows) if failure is None else present[len(sequences)]
        failure = failure or block.failure
        out: list[Any] = []
        for parent, place in zip(which, places.tolist(), strict=True):
            if parent >= end_of_input:
                return Block(out, positions[: len(out)], failure)
            sequence = made.get(parent, ())
            if len(sequence) > fan_out:
                error = PlanError(
                    f"`{node.label}` made {len(sequence)} elements of one, more than its "
                    f"max_fan_out of {fan_out}."
                )
                failure = failed(error, node, int(positions[len(out)]))
                return Block(out, positions[: len(out)], failure)
            out.append(sequence[place] if place < len(sequence) else None)
        return Block(out, positions)

    def _noted_once(self, positions: Positions, counted: npt.NDArray[np.bool_]) -> Block:
        """Elements of the input, noting those bad ones whose first place is asked for.

        One is made again for each of its places, perhaps, and is to be counted at the first of
        them: wherever a stream was cut, and whoever makes the others.
        """
        with taking_notes() as notes:
            block = self._input.at(positions)
        if notes and not counted.all():
            with taking_notes() as notes:
                self._input.at(positions[counted])
        pass_on(notes)
        return block
