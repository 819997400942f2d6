"""`Step`, the kind of operation that opens its own stream; `OverOne`, `Join`, and `How`.

The other kinds of nodes are run by the engine, by position as well as in a stream. A `Step` is an
operation on streams alone: its node makes its stream, whose class is in the same file.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from bushel.core.block import Block
from bushel.core.cursor import Cursor
from bushel.core.frozen import plain
from bushel.core.node import Node, refuse_length
from bushel.core.options import DatasetOptions
from bushel.core.positions import Keys, Positions
from bushel.core.state import State
from bushel.core.state_fields import Declares
from bushel.core.stream import Stream


class SideMarks(ABC):
    """The states of many datasets before and within some elements."""

    __slots__ = ()

    @abstractmethod
    def at(self, counts: Positions) -> list[State]:
        """The states of all datasets, after `counts` of these elements of each."""


class SideBySide(ABC):
    """Many datasets that are read by position together, each with its own progress."""

    # The datasets, as far as their states are concerned.
    parts: Sequence[Declares]

    @property
    @abstractmethod
    def at_once(self) -> int:
        """The best number of elements to read together."""

    @property
    @abstractmethod
    def is_suited(self) -> bool:
        """Whether reading together is possible and pays; else each stream is read by itself."""

    @abstractmethod
    def is_at_end(self, number: int, after: int = 0) -> bool:
        """Whether a dataset has no further element after `after` that are still to be taken."""

    @abstractmethod
    def read(self, which: Keys, least: int = 1) -> Block:
        """The next elements of these datasets, in turn, up to one that cannot be read together.

        They may be fewer than possible, but not fewer than `least`. Reading does not take them.
        Each has the position that it has in its own dataset.
        """

    @abstractmethod
    def take(self, which: Keys, positions: Positions) -> SideMarks:
        """Takes the first of the elements that were read; returns the marks of all datasets.

        `which` has the dataset of each element, `positions` its position.
        """

    @abstractmethod
    def marks(self) -> SideMarks:
        """The marks of all datasets."""

    @abstractmethod
    def states(self) -> list[State]:
        """The states of the streams."""

    @abstractmethod
    def restore(self, states: Sequence[State]) -> bool:
        """Restores the streams, if their states hold no more than a position."""


# Evaluates the next elements of streams together, given as (number of the stream, count). The
# streams hand these elements out when they are pulled.
EvaluateTogether: TypeAlias = Callable[[Sequence[tuple[int, int]]], None]
# The least number of streams for which it pays to evaluate them together.
FEWEST_TOGETHER = 4


def _each_by_itself(_nodes: Iterable[Node | None]) -> SideBySide | None:
    return None


def _nothing_shared(_streams: int) -> None:
    return None


@plain
class How:
    """What the engine and the pipeline offer to a step when it is opened."""

    # Makes the watch over a step that drops elements, given the label of the step.
    quota: Callable[[str], Any]
    # Makes the function that evaluates the next elements of these streams together.
    together: Callable[[Sequence[Cursor]], EvaluateTogether]
    # The first element of another stream, if it has one.
    first_of: Callable[[Node], list[Any]]
    # Reads the streams of these nodes side by side, where they can be.
    side_by_side: Callable[[Iterable[Node | None]], SideBySide | None] = _each_by_itself
    # The options of the pipeline, which apply to streams that the step opens itself as well.
    options: DatasetOptions | None = None
    # Makes the threads that streams share, given the number of streams that the step opens itself
    # and reads in turn.
    shared_by: Callable[[int], Any] = _nothing_shared


class Step(Node):
    """A step of a stream, with any number of input streams."""

    __slots__ = ()
    # Whether its elements are elements of its input: some of them, or some several times.
    same_elements = False
    # Whether the place in the input from which element n is made is known.
    one_each = False

    @abstractmethod
    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        """Makes the stream, given its input streams."""

    def length(self) -> int:
        return refuse_length(self)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        """The number of elements it makes, given the lengths of its inputs; None if unknown."""
        return None


class Join(Step):
    """A step with several input streams, each of which it opens when it needs it."""

    __slots__ = ()

    @abstractmethod
    def join(self, inputs: Callable[[], Sequence[Stream]], how: How) -> Stream:
        """Makes the stream; `inputs` opens the streams that it reads from."""

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return self.join(lambda: inputs, how)


class OverOne(Step):
    """A step with one input stream."""

    __slots__ = ()
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)
