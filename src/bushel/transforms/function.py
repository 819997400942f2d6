"""Finds a user's function, and calls it on the elements of a block, up to one that fails."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import is_
from types import BuiltinMethodType, MethodType
from typing import Any

from bushel.core.block import Block, Failure
from bushel.core.node import Node, failed
from bushel.core.positions import Positions
from bushel.core.room import room
from bushel.transforms.views import by_itself, keeps_more

Results = Callable[[Iterable[Any], Positions], Iterable[Any]]


def function_of(transform: Any, base: type, method: str, operation: str) -> Callable[..., Any]:
    """Returns the function that a transformation object or a plain callable stands for."""
    if isinstance(transform, base):
        return getattr(transform, method)  # type: ignore[no-any-return]
    if not callable(transform):
        raise TypeError(
            f"`{operation}` takes a function or a `transforms.{base.__name__}`, and got "
            f"{type(transform).__name__}: {transform!r}."
        )
    return transform  # type: ignore[no-any-return]


def identity_of(function: Callable[..., Any]) -> Hashable:
    """What functions have in common that are one and the same; whoever asks keeps them alive.

    >>> text = "a-b"
    >>> identity_of(text.split) == identity_of(text.split), identity_of(len) == identity_of(abs)
    (True, False)
    """
    # Each time that a method is looked up, there is a new object for it.
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", None)
    if type(function) in (MethodType, BuiltinMethodType) and owner is not None:
        return id(owner), name, id(getattr(function, "__func__", None))
    return id(function)


def any_none(rows: Sequence[Any]) -> bool:
    """Tells whether an element is None, at the speed of C and without comparing arrays."""
    if len(rows) == 1:
        return rows[0] is None
    return any(map(is_, rows, repeat(None)))


def collect(
    node: Node, results: Results, rows: Sequence[Any], positions: Positions
) -> tuple[list[Any], Failure | None]:
    """Gathers the results for rows, up to the first one that fails."""
    out: list[Any] = []
    # Only of this step's elements: the functions may themselves evaluate others.
    landing, room.landing = room.landing, None
    try:
        # `extend` keeps what came before an exception, so the failing element is known
        # without a try block (or even a loop in Python) around each call.
        made = iter(results(rows, positions))
        out.extend(islice(made, 1))
        change: Callable[[Any], Any] | None = None
        if out and landing is not None and landing.suits(out[0], len(rows)):
            change = landing.put
        elif out and keeps_more(out[0]):
            change = by_itself
        if change is not None:
            made = map(change, chain(_handed_on([out.pop()]), made))
        out.extend(made)
    except Exception as error:
        return out, failed(error, node, int(positions[len(out)]))
    if len(out) < len(rows):
        return out, _stopped(node, int(positions[len(out)]))
    return out, None


def _handed_on(rows: list[Any]) -> Iterator[Any]:
    """The rows, none of which the list has any more when somebody gets it."""
    while rows:
        yield rows.pop()


def collect_one(
    node: Node, results: Results, row: Any, positions: Positions
) -> tuple[list[Any], Failure | None]:
    """The same for a single row, with less ado.

    What its result keeps in memory is not looked at: it is handed out before the next is made.
    """
    try:
        for made in results((row,), positions):
            return [made], None
    except Exception as error:
        return [], failed(error, node, int(positions[0]))
    return [], _stopped(node, int(positions[0]))


def _stopped(node: Node, position: int) -> Failure:
    stopped = RuntimeError(
        f"the function of `{node.label}` raised StopIteration, which would end the stream "
        "silently. Return a value, or use `filter` to leave elements out."
    )
    return failed(stopped, node, position)


def apply_to_rows(node: Node, results: Results, block: Block, skip_none: bool = True) -> Block:
    """Applies a function to each element; None stays None, if it is to be skipped."""
    rows = block.rows()
    if skip_none and isinstance(block.values, list) and any_none(rows):
        return _apply_around_nones(node, results, block, rows)
    out, failure = collect(node, results, rows, block.positions)
    if failure is None:
        return Block(out, block.positions, block.failure, block.metadata)
    return _cut(block, out, failure)


def _apply_around_nones(node: Node, results: Results, block: Block, rows: list[Any]) -> Block:
    present = [index for index, row in enumerate(rows) if row is not None]
    out, failure = collect(
        node, results, [rows[index] for index in present], block.positions[present]
    )
    end = len(rows) if failure is None else present[len(out)]
    scattered: list[Any] = [None] * end
    for index, result in zip(present, out, strict=False):
        scattered[index] = result
    if failure is None:
        return Block(scattered, block.positions, block.failure, block.metadata)
    return _cut(block, scattered, failure)


def _cut(block: Block, rows: list[Any], failure: Failure) -> Block:
    end = len(rows)
    metadata = None if block.metadata is None else block.metadata[:end]
    return Block(rows, block.positions[:end], failure, metadata)
