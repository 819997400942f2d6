"""Nodes of streams that are read from a file, from its beginning to its end."""

from collections.abc import Callable
from typing import Any

from bushel.core.frozen import frozen
from bushel.core.node import Node, refuse_length


@frozen
class FileStreamNode(Node):
    """The records of a file, one after the other."""

    path: str
    name: str
    # Makes its stream. So what reads a format is imported only by those who use it.
    open: Callable[["FileStreamNode"], Any]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def length(self) -> int:
        return refuse_length(self)

    def describe(self) -> str:
        # Without the path: a file may be elsewhere when a stream is resumed.
        return self.name

    @property
    def label(self) -> str:
        return f"{self.name}({self.path!r})"
