"""The kinds of nodes (`Order`, `Each`, `Fold`, ...); `failed` makes the failure of an element.

    Source   reads records by key               fetch(keys) -> block
    Order    positions in its input             locate(positions) -> positions
    Choice   the same, and which input          locate(positions) -> which, positions
    Each     no memory between elements         apply(block) -> block
    Drop     an Each that leaves elements out   keep(rows) -> booleans
    Expand   an Each that makes several of one  expand(rows) -> sequences
    Zip      one element from each input
    Fold     groups of neighbours               group_size, fold(group, number) -> elements
    Step     an operation of streams            open(streams, how) -> stream  (core/step.py)
    Guard    what replaces elements that fail   stand_in(error) -> element
    Place    where or when, never what          no effect by position

A node is an immutable description. Nothing runs here: `run` evaluates nodes, by position
(`run/inline.py`) or as a stream (`run/step_streams.py`), and handles these kinds rather than the
operations. (Of operations it only knows mixtures, many of which it evaluates together.)
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex, TypeAlias

from bushel.core.block import Block, Columns, Failure, failure_of
from bushel.core.frozen import written_behind
from bushel.core.landing import Landing
from bushel.core.positions import Keys, Positions
from bushel.errors import PlanError, note_call, note_where

# `locate` of many orders: (number of the order, position) of each element -> input positions.
LocateMany: TypeAlias = Callable[[Keys, Positions], Positions]
# The same for many choices: -> number of the input, input position.
ChooseMany: TypeAlias = Callable[[Keys, Positions], tuple[Keys, Positions]]
# Positions in an order, and for each of them the index of the input position that comes there.
Found: TypeAlias = tuple[Positions, Keys]
# `fetch` of many sources: (number of the source, key) of each record -> records.
FetchMany: TypeAlias = Callable[[Keys, Keys], Columns]

# (lane, lanes) of a stream without lanes.
ONE_LANE = (0, 1)


class Node(ABC):
    """One step of a pipeline."""

    __slots__ = ()
    # Whether the step guarantees that no element is missing, even if steps before it drop some.
    has_all = False
    # Whether `length` is arithmetic, and takes no pass over the data.
    knows_length = True
    # Names of the arguments of its `function`, for the error if a user's function takes others.
    called_with: tuple[str, ...] = ()

    @property
    @abstractmethod
    def inputs(self) -> "tuple[Node, ...]":
        """The nodes that this one reads from."""

    @abstractmethod
    def length(self) -> int:
        """Number of elements in one epoch of a random-access dataset."""

    @abstractmethod
    def describe(self) -> str:
        """The code that a user would write for the node; equal texts may share a state."""

    @property
    def label(self) -> str:
        """The node in messages; may have details on which a state does not depend."""
        return self.describe()

    @property
    def likeness(self) -> Hashable:
        """A value that is equal for steps that do the same with an element at a position.

        One of several equal steps may do the work of all (see `run/many.py`).
        """
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return written_behind(self, super().__reduce_ex__(protocol), lambda node: node.inputs)


class Source(Node):
    """Where records come from."""

    __slots__ = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def reads_later(self) -> bool:
        """Whether `fetch` only notes the keys, and values are read when they are used."""
        return False

    # Whether keys are positions modulo the length.
    wraps = False

    @property
    def records(self) -> Any | None:
        """The object whose `[key]` is a record, if `fetch` only calls that for each key."""
        return None

    @property
    def at_a_time(self) -> int:
        """The least number of keys for which `fetch` is efficient."""
        return 1

    @abstractmethod
    def keys(self, positions: Positions) -> Keys:
        """Maps positions of any epoch to keys."""

    @abstractmethod
    def fetch(self, keys: Keys, positions: Positions) -> Block:
        """Reads the records with these keys, which stand at these positions."""

    @classmethod
    def fetch_many(cls, sources: "Sequence[Source]") -> FetchMany | None:
        """A function that reads records of many sources of this class in one call, or None.

        It cannot fail, and gives the same records as `fetch` of each source.
        """
        return None


class _Single(Node):
    __slots__ = ()
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def length(self) -> int:
        # A loop, as chains may be longer than calls may be nested.
        node = self.input
        while type(node).length is _Single.length:
            node = node.inputs[0]
        return node.length()


class Order(_Single):
    """Maps positions of the output to positions of the input."""

    __slots__ = ()
    # Whether it pays to locate positions ahead of those that are asked for (see run/inline.py).
    costly = False

    @property
    def stretch(self) -> int:
        """The number of neighbours that are ordered together, such as a window or an epoch.

        Locating beyond a stretch costs as much as locating the next stretch.
        """
        return self.length()

    @abstractmethod
    def locate(self, positions: Positions) -> Positions:
        """Maps positions to positions of the input."""

    def locate_run(self, start: int, stop: int) -> tuple[int, int] | None:
        """Maps a run of positions to a run of the input, where it is one."""
        return None

    def find(self, positions: Positions, stop: int) -> Found | None:
        """Finds the positions before `stop` at which input positions come; None if unknown.

        This is the inverse of `locate`: each may come once, several times or never.
        """
        return None

    def reach(self, stop: int) -> int:
        """The end of the input positions that come before `stop`, at most."""
        length = self.length()
        return -(-stop // length) * self.input.length() if length else 0

    @classmethod
    def side_by_side(cls, nodes: "Sequence[Order]") -> LocateMany | None:
        """A function that locates positions of many orders of this class in one call, or None.

        Positions are 64-bit integers.
        """
        return None


class Choice(Node):
    """An order over several inputs."""

    __slots__ = ()

    @abstractmethod
    def locate(self, positions: Positions) -> tuple[Keys, Positions]:
        """Maps positions to the number of an input and the position in it."""

    @classmethod
    def side_by_side(cls, choices: "Sequence[Choice]") -> ChooseMany | None:
        """A function that locates positions of many choices of this class in one call, or None.

        Positions are 64-bit integers.
        """
        return None

    def find(self, part: int, positions: Positions, stop: int) -> Found | None:
        """Finds the positions before `stop` at which positions of one input come, or None."""
        return None

    def reach(self, part: int, stop: int) -> int | None:
        """The end of one input's positions that come before `stop`; None if unknown."""
        return None


class Each(_Single):
    """Changes elements one by one; no memory from one to the next."""

    __slots__ = ()
    # Whether the result depends on positions. In a stream these are running counts, which the
    # engine keeps.
    uses_positions = False
    # Whether it must run in the user's process, and never in a worker.
    stays_here = False
    # Whether elements are made by one call each.
    one_by_one = False
    # Name of the running count in a state.
    counter = "counter"
    # (lane, lanes) of this step. Element n of a lane has number n * lanes + lane, so that no
    # number comes in two lanes.
    lane: tuple[int, int] = ONE_LANE

    @abstractmethod
    def apply(self, block: Block) -> Block:
        """Changes the elements of a block; as many out as in, unless one fails."""


class OneByOne(Each):
    """An Each that is a function of one element and its position."""

    __slots__ = ()
    one_by_one = True
    # Whether None is skipped, as in datasets, where it means a dropped element. In loaders it
    # is a value.
    skips_none = True

    @abstractmethod
    def results(self, rows: Iterable[Any], positions: Positions) -> Iterable[Any]:
        """Gives the new element for each element."""


class Columnwise(Each):
    """An Each that is a function of columns, and element-wise."""

    __slots__ = ()

    @abstractmethod
    def change(self, columns: Any, size: int) -> Columns | list[Any]:
        """Makes as many new elements of a tree of arrays with this leading axis."""


class Drop(_Single):
    """Drops elements: None in a random-access dataset, absent in a stream."""

    __slots__ = ()

    @abstractmethod
    def keep(self, rows: Sequence[Any], positions: Positions) -> tuple[list[bool], Failure | None]:
        """Says which elements stay; fewer answers than elements where one failed."""


class Expand(_Single):
    """Makes a sequence of each element."""

    __slots__ = ()

    @property
    @abstractmethod
    def fan_out(self) -> int:
        """How many places each element takes in a random-access dataset."""

    @abstractmethod
    def expand(
        self, rows: Sequence[Any], positions: Positions
    ) -> tuple[list[Sequence[Any]], Failure | None]:
        """Makes the sequences; fewer than elements where one failed."""

    def length(self) -> int:
        # The length of endless data is the largest integer that `len` can return.
        return min(self.input.length() * self.fan_out, sys.maxsize)


class Zip(Node):
    """Takes one element from each input and makes a tuple of them."""

    __slots__ = ()


class Fold(_Single):
    """Turns each group of `group_size` neighbours into a block of new elements."""

    __slots__ = ()
    # One new element for each group: then position k of the output is group k of the input,
    # and random access works.
    one_per_group = True

    @property
    @abstractmethod
    def group_size(self) -> int:
        """How many neighbours make a group; the last one may be shorter."""

    @property
    def drops_short_group(self) -> bool:
        return False

    @abstractmethod
    def fold(self, group: "list[Any] | Columns", number: int) -> Sequence[Any]:
        """Makes the new elements of the group with this number."""

    def landing(self, total: int) -> Landing | None:
        """Memory into which the large arrays of the next `total` elements may be copied.

        None if a group is more than the stacked arrays of its elements.
        """
        return None

    def length(self) -> int:
        return self.groups_in(self.input.length())

    def groups_in(self, length: int) -> int:
        """How many groups `length` neighbours make."""
        whole, rest = divmod(length, self.group_size)
        return whole + (1 if rest and not self.drops_short_group else 0)


class Guard(_Single):
    """Says what replaces elements that fail."""

    __slots__ = ()
    budget: int | None
    quarantine: str | None

    @property
    @abstractmethod
    def drops(self) -> bool:
        """Whether they are dropped: None in a random-access dataset, absent in a stream."""

    @abstractmethod
    def catches(self, error: Exception) -> bool:
        """Whether this error makes a bad record, and is not raised."""

    @abstractmethod
    def stand_in(self, error: Exception) -> Any:
        """The element in its place; None if it is dropped."""


class Place(_Single):
    """Says where, when or how elements are computed, without changing them."""

    __slots__ = ()


def walk(node: Node) -> Iterable[Node]:
    """Yields a node and everything upstream of it, breadth first."""
    level = [node]
    while level:
        yield from level
        level = [parent for child in level for parent in child.inputs]


def chain_of(node: Node) -> list[Node]:
    """A node and the nodes that it reads from, up to the first with no or several inputs."""
    chain = [node]
    while len(node.inputs) == 1:
        (node,) = node.inputs
        chain.append(node)
    return chain


def leaves_out(step: Node) -> bool:
    """Whether a step may drop elements, or make several of one."""
    return isinstance(step, (Drop, Expand)) or (isinstance(step, Guard) and step.drops)


def with_inputs(node: Node, inputs: list[Node], **fields: Any) -> Node:
    """The same step over other inputs."""
    if not inputs:
        return node
    if isinstance(node, (Choice, Zip)):
        return replace(node, parts=tuple(inputs), **fields)  # type: ignore[type-var]
    return replace(node, input=inputs[0], **fields)  # type: ignore[type-var]


def failed(error: Exception, node: Node, position: int) -> Failure:
    """Makes the failure that takes the place of the element at a position."""
    if isinstance(error, StopIteration):
        # Raised unchanged, it would end the stream silently.
        stopped = RuntimeError(f"a function of `{node.label}` raised StopIteration.")
        stopped.__cause__ = error
        error = stopped
    note_where(error, node.label, position)
    if isinstance(error, TypeError) and node.called_with:
        note_call(error, getattr(node, "function", None), node.called_with)
    return failure_of(error)


def refuse_length(node: Node) -> int:
    """The length of a stream, for nodes that have none."""
    raise PlanError(f"`{node.label}` is a stream: its length is not known before it ends.")
