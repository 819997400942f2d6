"""`batch_by_tokens`: as many neighbours as fit into a budget of tokens; counts the padding."""

from collections.abc import Iterable
from typing import Any

from bushel.batch.length_of import Length, LengthOf, check_length
from bushel.batch.pad import Padding, padding_of, with_lengths
from bushel.batch.regroup import Machine, Regroup
from bushel.core.arguments import positive, whole
from bushel.core.frozen import frozen
from bushel.core.node import Node
from bushel.core.state import State
from bushel.core.state_fields import FieldKind, Fields, Inner, Path, check_whole
from bushel.core.stream import Stream
from bushel.errors import BatchError, StateError

# The counts of a state over all batches so far.
COUNTED = ("batches", "rows", "tokens", "cells")


@frozen
class TokenBatchNode(Regroup):
    """Batches neighbours: as many as fit into `max_tokens` cells, padded to the longest."""

    input: Node
    max_tokens: int
    length_of: LengthOf
    padding: Padding
    max_rows: int | None
    drop_remainder: bool
    lengths_as: str | None

    def machine(self) -> Machine:
        return _TokenBatcher(self)

    def describe(self) -> str:
        rows = "" if self.max_rows is None else f", max_rows={self.max_rows}"
        multiple = self.padding.multiple
        pads = f", pad_to_multiple_of={multiple}" if multiple > 1 else ""
        drop = ", drop_remainder=True" if self.drop_remainder else ""
        return f"batch_by_tokens({self.max_tokens}{self.length_of.describe()}{rows}{pads}{drop})"


class _TokenBatcher(Machine):
    """One batch is a group. The counts before a batch are carried to it."""

    makes_batches = True

    def __init__(self, node: TokenBatchNode) -> None:
        self._node = node
        self._rows: list[Any] = []
        self._lengths: list[int] = []
        self._longest = 0
        self._full = False

    def begin(self, carried: Any) -> None:
        self.carried = carried
        self._rows, self._lengths, self._longest = [], [], 0
        self.complete = self._full = False

    def add(self, element: Any) -> bool:
        node = self._node
        length = node.length_of(element)
        if self._width(length) > node.max_tokens:
            raise BatchError(
                f"an element of {length} tokens is more than a batch may have: max_tokens is "
                f"{node.max_tokens}{self._padded_to(length)}. Cut such elements in a `map` "
                "before, or leave them out with a `filter`."
            )
        longest = max(self._longest, length)
        if (len(self._rows) + 1) * self._width(longest) > node.max_tokens:
            self._full = True
            return False
        self._rows.append(element)
        self._lengths.append(length)
        self._longest = longest
        self.complete = self._full = len(self._rows) == node.max_rows
        return True

    def _width(self, longest: int) -> int:
        # An empty element takes a cell, too, or a batch could have any number of them.
        return max(1, self._node.padding.up(longest))

    def _padded_to(self, length: int) -> str:
        width = self._width(length)
        return "" if width == length else f", and it is padded to {width}"

    def end(self, made_before: int) -> list[Any]:
        node, rows, lengths = self._node, self._rows, self._lengths
        if not rows or (node.drop_remainder and not self._full):
            return []
        batch = with_lengths(node.padding.batch(rows), lengths, node.lengths_as, "batch_by_tokens")
        before = self.carried or (0, 0, 0)
        cells = len(rows) * self._width(self._longest)
        added = zip(before, (len(rows), sum(lengths), cells), strict=True)
        self.carried = tuple(old + new for old, new in added)
        return [batch]

    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        counts = (made_before, *(carried or (0, 0, 0)))
        return {"parent": parent, "padding": dict(zip(COUNTED, counts, strict=True))}

    def fields(self, input: Stream) -> Fields:
        def too_many(state: State) -> str | None:
            made, rows, tokens, cells = (state["padding"][name] for name in COUNTED)
            given = input.most_before(state["parent"])
            if given is not None and rows > given:
                return f"'padding' counts {rows} rows of {given} elements"
            if tokens <= cells <= made * self._node.max_tokens and made <= rows <= cells:
                return None
            return f"{made} batches of {rows} rows and {cells} cells cannot have {tokens} tokens"

        return Fields(too_many, parent=Inner(input), padding=_PaddingCounts())

    def read(self, state: State) -> tuple[Any, Any, int, int]:
        made, *counts = (state["padding"][name] for name in COUNTED)
        return state["parent"], tuple(counts), 0, made


class _PaddingCounts(FieldKind):
    """Counts over the batches so far."""

    def below(self, value: Any, name: str, path: Path, state: State) -> Iterable[Any]:
        if not isinstance(value, dict) or not value.keys() >= set(COUNTED):
            raise StateError(f"this state has a damaged {name!r} at {path}: {value!r:.200}.")
        for count in COUNTED:
            check_whole(value[count], count, path.of(count))
        return ()


def batch_by_tokens_step(
    parent: Node,
    max_tokens: int,
    length: Length,
    pad_to_multiple_of: int,
    padding: Any,
    max_rows: int | None,
    drop_remainder: bool,
    lengths_as: str | None,
) -> Node:
    """Makes the step of `batch_by_tokens`, which explains it."""
    budget = positive("batch_by_tokens", "max_tokens", max_tokens)
    rows = None if max_rows is None else positive("batch_by_tokens", "max_rows", max_rows)
    return TokenBatchNode(
        parent,
        budget,
        LengthOf(check_length(length, "batch_by_tokens"), "batch_by_tokens"),
        padding_of(padding, whole(pad_to_multiple_of, "pad_to_multiple_of"), "batch_by_tokens"),
        rows,
        bool(drop_remainder),
        lengths_as,
    )
