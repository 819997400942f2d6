"""`Step`, the kind of operation that opens its own stream; `OverOne`, `Join`, and `How`.

The other kinds of nodes are run by the engine, by position as well as in a stream. A `Step` is
an operation on streams alone: its node makes its stream, which stands beside it.
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
    """Where many datasets were before some elements, and are after them."""

    __slots__ = ()

    @abstractmethod
    def at(self, counts: Positions) -> list[State]:
        """The states of all of them, after `counts` of these elements of each."""


class SideBySide(ABC):
    """Many datasets that are read by position in one go, and how far each was read."""

    # Each of them, as far as its states are concerned.
    parts: Sequence[Declares]

    @property
    @abstractmethod
    def at_once(self) -> int:
        """How many elements had better be read together."""

    @property
    @abstractmethod
    def is_suited(self) -> bool:
        """Whether elements are as they should be; else each stream is better read by itself."""

    @abstractmethod
    def is_at_end(self, number: int, after: int = 0) -> bool:
        """Whether one of them has no further element, after so many that are still to be taken."""

    @abstractmethod
    def read(self, which: Keys, least: int = 1) -> Block:
        """The next elements of these, in turn, up to one that cannot be had like this.

        They may be fewer than could be, too, but not than `least`. They are not taken by that.
        Each has the position that it has in its own dataset.
        """

    @abstractmethod
    def take(self, which: Keys, positions: Positions) -> SideMarks:
        """Takes the first of the elements that were read; says where all were, and are now.

        They are given by whose turn it was and by their positions.
        """

    @abstractmethod
    def marks(self) -> SideMarks:
        """Where all of them are."""

    @abstractmethod
    def states(self) -> list[State]:
        """The states of the streams."""

    @abstractmethod
    def restore(self, states: Sequence[State]) -> bool:
        """Goes to states of the streams, where these say no more than how much was taken."""


# Evaluates the next elements of streams, given as (number of the stream, count), where that is
# better done together. The streams hand these elements out when they are pulled.
EvaluateTogether: TypeAlias = Callable[[Sequence[tuple[int, int]]], None]
# Streams from which on it pays to evaluate them together.
FEWEST_TOGETHER = 4


def _each_by_itself(_nodes: Iterable[Node | None]) -> SideBySide | None:
    return None


def _nothing_shared(_streams: int) -> None:
    return None


@plain
class How:
    """What a step may need of the engine and the pipeline in which it is opened."""

    # Makes the watch over a step that drops elements, given the label of the step.
    quota: Callable[[str], Any]
    # Makes what evaluates the next elements of these streams together.
    together: Callable[[Sequence[Cursor]], EvaluateTogether]
    # The first element of another stream, if it has one.
    first_of: Callable[[Node], list[Any]]
    # Reads the streams of these nodes side by side, where they can be.
    side_by_side: Callable[[Iterable[Node | None]], SideBySide | None] = _each_by_itself
    # The options of the pipeline, which hold for streams that the step opens itself as well.
    options: DatasetOptions | None = None
    # Makes what so many streams share that the step opens itself, and reads in turn: threads.
    shared_by: Callable[[int], Any] = _nothing_shared


class Step(Node):
    """A step of a stream, over any number of streams."""

    __slots__ = ()
    # Whether its elements are elements of its input: some of them, or some several times.
    same_elements = False
    # Whether element n is made of the elements from a known place of the input on.
    one_each = False

    @abstractmethod
    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        """Makes the stream, over those of its inputs."""

    def length(self) -> int:
        return refuse_length(self)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        """How many elements it makes, given the lengths of its inputs; None if unknown."""
        return None


class Join(Step):
    """A step over several streams, which it opens when it needs each of them."""

    __slots__ = ()

    @abstractmethod
    def join(self, inputs: Callable[[], Sequence[Stream]], how: How) -> Stream:
        """Makes the stream; `inputs` opens those that it reads from."""

    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        return self.join(lambda: inputs, how)


class OverOne(Step):
    """A step over one stream."""

    __slots__ = ()
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)
