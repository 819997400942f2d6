"""Steps of a stream that run themselves: described, run and resumed in one file.

The other kinds of nodes are run by the engine, by position as well as in a stream. A `Step` is
an operation on streams alone: its node makes its stream, which stands beside it.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from bushel.core.frozen import plain
from bushel.core.node import Node, refuse_length
from bushel.core.stream import Stream


@plain
class How:
    """What a step may need to know of the pipeline in which it is opened."""

    # Makes the watch over a step that drops elements, of which the label is given.
    quota: Callable[[str], Any]


class Step(Node):
    """A step of a stream, over any number of streams."""

    __slots__ = ()
    # Whether its elements are those of its input, some of them or several times.
    same_elements = False
    # Whether element n is made of the elements from a known place of the input on.
    one_each = False

    @abstractmethod
    def open(self, inputs: Sequence[Stream], how: How) -> Stream:
        """Makes the stream, over those of its inputs."""

    def length(self) -> int:
        return refuse_length(self)

    def length_after(self, lengths: Sequence[int | None]) -> int | None:
        """How many elements it makes of so many of each input, where that is arithmetic."""
        return None


class OverOne(Step):
    """A step over one stream."""

    __slots__ = ()
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)
