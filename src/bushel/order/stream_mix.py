"""`mix` of streams: its arguments, its node and its stream; what happens when a part ends."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bushel.core.block import Block, Failure
from bushel.core.frozen import frozen, plain
from bushel.core.naming import name_of
from bushel.core.node import ONE_LANE, Choice, ChooseMany, Node, failed, refuse_length
from bushel.core.positions import Keys, Positions
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.core.step import How, Join, SideBySide
from bushel.core.stream import Chunk, Marks, Stream
from bushel.errors import PlanError
from bushel.order.exact_shares import Ahead
from bushel.order.mix import to_proportions
from bushel.order.mix_parts import Counts, MixParts, PartMarks, Portion, PositionParts, StreamParts
from bushel.order.mix_state import SavedMixture
from bushel.order.mix_turns import Choices, FixedTurns, ScheduledTurns, Turns
from bushel.order.mix_weights import Course, going_on, own_piece
from bushel.order.pattern import pattern_of, places_before
from bushel.order.patterns import patterns_together
from bushel.order.proportions import table_of
from bushel.order.repeat import EpochsNode
from bushel.order.schedule import Weights, WeightSchedule

# Weights as `mix` takes them: fixed, or depending on the number of the element.
MixWeights: TypeAlias = Weights | WeightSchedule | Callable[[int], Weights]

ON_END = ("stop", "restart", "drop")


@frozen
class StreamMixNode(Choice, Join):
    """Takes elements from streams in proportion, spread as evenly as can be.

    Each part's elements come in order, so the state only needs whose turn it is.

    >>> from bushel.sources.memory import RangeNode
    >>> parts = (RangeNode(range(5)), RangeNode(range(10)))
    >>> ramp = WeightSchedule.linear([(0, [1, 0]), (6, [1, 3])])
    >>> StreamMixNode(parts, ramp).locate(np.arange(6))
    (array([0, 0, 0, 1, 1, 0]), array([0, 1, 2, 0, 1, 3]))
    """

    parts: tuple[Node, ...]
    # Fixed proportions, or a function of the number of the element.
    weights: tuple[int, ...] | WeightSchedule | Callable[[int], Weights]
    names: tuple[str, ...] | None = None
    on_end: str = "stop"
    # Lanes begin at different places of the pattern: so one step of all of them has the right
    # proportions, and so has each lane in the course of time.
    lane: tuple[int, int] = ONE_LANE

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def length(self) -> int:
        return refuse_length(self)

    def join(self, inputs: Callable[[], Sequence[Stream]], how: How) -> Stream:
        side_by_side = how.side_by_side(self.parts)

        def streams() -> StreamParts:
            return StreamParts(inputs(), how.together)

        parts = streams() if side_by_side is None else PositionParts(side_by_side, streams)
        return MixStream(parts, self)

    def turns(self) -> Turns:
        """Tells whose turn it is, for one stream."""
        if isinstance(self.weights, tuple):
            return FixedTurns(self.weights, self.lane[0])
        count = len(self.parts)
        return ScheduledTurns(table_of(self.weights, self.names, count), count, self.lane)

    def locate(self, positions: Positions) -> tuple[Keys, Positions]:
        if isinstance(self.weights, tuple):
            before = np.array(places_before(self.lane[0], self.weights), dtype=np.int64)
            which, where = pattern_of(self.weights).locate(positions + self.lane[0])
            return which, where - before.take(which)
        turns = self.turns()
        count = int(positions.max()) + 1 if len(positions) else 0
        stays = (True,) * len(self.parts)
        ahead, which = turns.beginning(), np.empty(0, dtype=np.int64)
        while len(which) < count:
            choices = turns.choose(len(which), count - len(which), ahead, stays)
            ahead = choices.ahead(len(choices.which))
            which = np.concatenate([which, choices.which])
        where = np.zeros(count, dtype=np.int64)
        for part in range(len(self.parts)):
            mine = which == part
            where[mine] = np.arange(mine.sum())
        return which.take(positions), where.take(positions)

    @classmethod
    def side_by_side(cls, choices: Sequence["StreamMixNode"]) -> ChooseMany | None:  # type: ignore[override]
        """A function that locates positions of many mixtures, if their weights are constant."""
        weights = [node.weights for node in choices if isinstance(node.weights, tuple)]
        if len(weights) < len(choices):
            return None
        return patterns_together(weights, [node.lane[0] for node in choices])

    def describe(self) -> str:
        # Without the weights, which may be others when a state is restored: what each part has
        # given remains valid, and the new weights apply from there on.
        if self.names is not None:
            return f"mix(parts by name{self._ending()})"  # The names may change, too.
        return f"mix({len(self.parts)} parts{self._ending()})"

    @property
    def label(self) -> str:
        parts = f"{len(self.parts)} parts" if self.names is None else ", ".join(self.names)
        if isinstance(self.weights, tuple):
            return f"mix({parts}, proportions={list(self.weights)}{self._ending()})"
        is_schedule = isinstance(self.weights, WeightSchedule)
        shown = repr(self.weights) if is_schedule else name_of(self.weights)
        return f"mix({parts}, weights={shown}{self._ending()})"

    def _ending(self) -> str:
        return "" if self.on_end == "stop" else f", on_end={self.on_end!r}"


def mix_step(
    parts: Sequence[Node], weights: Any, names: tuple[str, ...] | None, on_end: str
) -> StreamMixNode:
    """The step of `IterDataset.mix`."""
    if on_end not in ON_END:
        raise PlanError(
            f"`mix`: on_end must be 'stop' (end with the first part that ends), 'restart' (begin "
            f"that part again) or 'drop' (go on without it), and is {on_end!r}."
        )
    if on_end == "restart":
        called = range(len(parts)) if names is None else map(repr, names)
        parts = [EpochsNode(part, f"part {name}") for part, name in zip(parts, called, strict=True)]
    if isinstance(weights, WeightSchedule) or callable(weights):
        if not parts:
            raise PlanError("`mix` needs at least one dataset, and got none.")
        if isinstance(weights, WeightSchedule):
            table_of(weights, names, len(parts))  # Raises here rather than at run time.
        return StreamMixNode(tuple(parts), weights, names, on_end)
    if isinstance(weights, Mapping) and names is not None:
        if set(weights) != set(names):
            raise PlanError(f"`mix` got datasets {list(names)} and weights for {sorted(weights)}.")
        weights = [weights[name] for name in names]
    elif isinstance(weights, Mapping):
        raise PlanError("`mix` takes a mapping of weights only with a mapping of datasets.")
    elif weights is not None and not hasattr(weights, "__iter__"):
        raise TypeError(
            "`mix` takes weights as a list, one for each dataset, as a `WeightSchedule`, or as a "
            f"function of the number of the element, and got {weights!r:.100}."
        )
    proportions = to_proportions(weights, len(parts))
    return StreamMixNode(tuple(parts), proportions, names, on_end)


@plain
class _MixPlace:
    """The place of a mixture, without the places of its parts."""

    index: int
    # The number of elements that each part has given.
    taken: Counts
    # The chosen turns, and the number of these that are over.
    choices: Choices
    used: int
    # Whether each part is still in the mixture.
    stays: Sequence[bool]

    @property
    def ahead(self) -> Ahead:
        """How far each part is ahead of its share."""
        return self.choices.ahead(self.used)


@plain
class _MixMarks(Marks):
    stream: "MixStream"
    course: Course
    start: _MixPlace
    which: Keys
    parts: PartMarks
    failed_part: int | None = None

    def at(self, used: int) -> State:
        start = self.start
        counts = np.bincount(self.which[:used], minlength=len(start.taken))
        taken = start.taken + counts
        if used > len(self.which) and self.failed_part is not None:
            counts[self.failed_part] += 1  # The part had its turn, and gave nothing.
        place = _MixPlace(start.index + used, taken, start.choices, start.used + used, start.stays)
        return self.stream.state_at(self.parts.at(counts), self.course, place, False)


class MixStream(Stream):
    """Takes elements from its inputs in turn.

    When a part has no element for its turn, the mixture ends, or goes on without that part.
    """

    def __init__(self, parts: MixParts, node: StreamMixNode) -> None:
        # The parts as they are read now, and as they are read after a restore if possible.
        self._parts = self._best_parts = parts
        self.eager = parts.eager
        self._node = node
        self._drops = node.on_end == "drop"
        self._own = own_piece(node)
        self._course = Course([self._own])
        self._count = len(node.parts)
        self._place = self._beginning(self._own.first, [True] * self._count)
        self._stopped = False
        starts = parts.states() if node.names is not None else []
        self._saved = SavedMixture(node, self._own, parts.declared(), starts)

    def _beginning(self, ahead: Ahead, stays: Sequence[bool]) -> _MixPlace:
        nothing = Choices(np.empty(0, dtype=np.int64), ahead)
        return _MixPlace(0, np.zeros(len(stays), dtype=np.int64), nothing, 0, stays)

    def pull(self, want: int) -> Chunk | None:
        while not self._stopped:
            ask = max(want, self._parts.at_once) if self.eager else 1
            try:
                which = self._whose_turn(ask)
            except Exception as error:  # In a user's function that returns the weights.
                return self._failed(failed(error, self._node, self._place.index))
            if which is None:
                self._stopped = True
                return None
            portion = self._parts.read(which)
            if portion is None:
                self._parts = self._parts.streams()
                continue
            if portion.size:
                return self._chunk(which[: portion.size], portion)
            part = int(which[0]) if len(which) else None
            if part is not None and self._parts.fails(part):
                return self._failed(None, part)
            if part is None or not self._drops:
                self._stopped = True
                return None
            place = self._place
            stays = [there and number != part for number, there in enumerate(place.stays)]
            # The turns must be chosen anew.
            nothing = Choices(which[:0], place.ahead)
            self._place = _MixPlace(place.index, place.taken, nothing, 0, stays)
        return None

    @property
    def side_by_side(self) -> SideBySide | None:
        """Its parts, while they are read by position."""
        return self._best_parts.side_by_side

    def upcoming(self, count: int) -> Keys | None:
        """The next turns, about `count`, if other code may read the elements."""
        parts = self._parts.side_by_side
        if parts is None or not parts.is_suited or self._stopped:
            return None
        try:
            return self._whose_turn(count)
        except Exception:  # In a user's function: raised when the element is asked for.
            return None

    def _whose_turn(self, ask: int) -> Keys | None:
        """The parts of the next elements, `ask` or fewer; None at the end."""
        place = self._place
        most = self._course.most(place.index, ask)
        if not most:
            return None
        if place.used >= len(place.choices.which):
            place = self._place = self._choose(place, most)
        return place.choices.which[place.used : place.used + most]

    def _choose(self, place: _MixPlace, most: int) -> _MixPlace:
        """The same place, with the turns from there on."""
        piece = self._course.at(place.index)
        count = self._course.most(place.index, piece.turns.at_once(most))
        ahead = piece.ahead(place.ahead)
        choices = piece.turns.choose(place.index, count, ahead, place.stays)
        return _MixPlace(place.index, place.taken, choices, 0, place.stays)

    def _chunk(self, which: Keys, portion: Portion) -> Chunk:
        start, size = self._place, portion.size
        marks = _MixMarks(self, self._course, start, which, portion.marks)
        taken = start.taken + portion.counts
        self._place = _MixPlace(
            start.index + size, taken, start.choices, start.used + size, start.stays
        )
        positions = np.arange(start.index, start.index + size, dtype=np.int64)
        return Chunk(Block(portion.values, positions), marks)

    def _failed(self, failure: Failure | None, part: int | None = None) -> Chunk:
        """The failure or the end, at an element whose part failed or has no further element."""
        start, parts = self._place, self._parts.marks()
        if part is not None:
            self._parts = streams = self._parts.streams()
            failure, parts = streams.take_failure(part)
        nothing = np.empty(0, dtype=np.int64)
        marks = _MixMarks(self, self._course, start, nothing, parts, part)
        self._place = _MixPlace(
            start.index + 1, start.taken, start.choices, start.used + 1, start.stays
        )
        return Chunk(Block([], nothing, failure), marks)

    def state_at(
        self, states: Sequence[State], course: Course, place: _MixPlace, stopped: bool
    ) -> State:
        """The state at a place, given the states of the parts."""
        ahead = course.at(place.index).ahead(place.ahead)
        taken = place.taken.tolist()
        told = course.told(place.index)
        left = [int(not there) for there in place.stays] if self._drops else None
        return self._saved.state_of(states, place.index, taken, told, ahead, stopped, left)

    def state(self) -> State:
        return self.state_at(self._parts.states(), self._course, self._place, self._stopped)

    def restore(self, state: State) -> None:
        index, stopped = state["index"], state["stop"]
        saved = self._saved
        parents = saved.parts_of(state, "parents", saved.starts)
        known = self._own.turns.taken_before(index)
        none = [0] * self._count
        taken = saved.whole_parts_of(state, "taken", none, known)
        course = going_on(self._own, self._node, state)
        ahead = course.at(index).first
        if ahead:
            ahead = tuple(saved.whole_parts_of(state, "ahead", ahead))
        left = saved.whole_parts_of(state, "left", none)
        self._parts = self._best_parts.restore(parents)
        stays = [not (gone and self._drops) for gone in left]
        nothing = Choices(np.empty(0, dtype=np.int64), ahead)
        counts = np.array(taken, dtype=np.int64)
        self._place, self._stopped = _MixPlace(index, counts, nothing, 0, stays), bool(stopped)
        self._course = course

    def fields(self) -> Fields:
        return self._saved.fields()

    def most_before(self, state: State | None) -> int | None:
        return self._saved.most_before(state)

    def start(self) -> None:
        self._parts.start()

    def close(self) -> None:
        self._best_parts.close()
