"""States of the lanes of a host: at every row, and their checks."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bushel.core.cursor import Taken
from bushel.core.frozen import plain
from bushel.core.state import State, copy_state
from bushel.core.state_fields import Declares, FieldKind, Path
from bushel.core.step import SideMarks
from bushel.core.stream import Marks
from bushel.errors import StateError
from bushel.order.mix_held import with_held

if TYPE_CHECKING:
    from bushel.lanes.gather import LanesStream


@plain
class LaneMarks(Marks):
    """The states between the rows of some steps."""

    stream: "LanesStream"
    step: int
    size: int
    taken: Sequence[Taken]
    # The places of the lanes after a step that failed.
    after: Sequence[tuple[Marks, int, int]] = ()

    def at(self, used: int) -> State:
        if used > self.size:
            behind = [marks.at(taken) for marks, taken, _ in self.after]
            return self.stream.state_of(behind, self.step + 1, 0)
        steps, row = divmod(used, self.stream.width)
        count = steps * self.stream.rows
        # Within a step: its start, and the number of rows. So only that number depends on which
        # host had the lanes.
        states = [self._state_of(part, count, row > 0) for part in self.taken]
        return self.stream.state_of(states, self.step + steps, row)

    def _state_of(self, part: Taken, count: int, is_open: bool) -> State:
        size = len(part.block)
        state = part.at(min(count, size))
        if not is_open:
            return state
        return with_held(state, lambda: part.marks.reached(min(count + self.stream.rows, size)))


@plain
class SideLaneMarks(Marks):
    """The same if lanes are read side by side, by position."""

    stream: "LanesStream"
    step: int
    lanes: SideMarks

    def at(self, used: int) -> State:
        rows, width = self.stream.rows, self.stream.width
        steps, row = divmod(used, width)
        counts = np.full(width // rows, steps * rows, dtype=np.int64)
        states = self.lanes.at(counts)
        if row:
            behind = zip(states, self.lanes.at(counts + rows), strict=True)
            states = [with_held(state, partial(copy_state, after)) for state, after in behind]
        return self.stream.state_of(states, self.step + steps, row)


class LaneStates(FieldKind):
    """The states of lanes by number: those of this host, and perhaps others."""

    def __init__(self, own: Mapping[str, Declares]) -> None:
        self._own = own

    def below(
        self, value: Any, name: str, path: Path, state: State
    ) -> Iterable[tuple[Declares, Any, Path]]:
        if not isinstance(value, dict):
            raise StateError(f"{name!r} in a state must be a dict, and is {value!r:.200}.")
        names = list(self._own)
        missing = [lane for lane in names if lane not in value]
        if missing:
            raise StateError(
                f"this host has lanes {names[0]} to {names[-1]}, and the state has none for "
                f"lane {missing[0]}: it has {_show(value)}. A checkpoint of another number of "
                "hosts is restored from the states of all of them together: through Orbax by "
                "itself, or with `bushel.checkpoint.merge_states([...])`."
            )
        return [(stream, value[lane], path.of(lane)) for lane, stream in self._own.items()]


def _show(lanes: dict[str, Any]) -> str:
    if not lanes:
        return "none"
    names = list(lanes)
    return f"lane {names[0]}" if len(names) == 1 else f"lanes {names[0]} to {names[-1]}"
