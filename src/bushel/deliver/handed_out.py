"""Which elements a packer has already delivered in its rows, for `mix_counts`.

The state of a packer is the beginning of its group, and the number of rows of the group that were
delivered. Which elements are in these rows is not in the state: the group is made again to find
out.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from bushel.batch.pack import PackNode
from bushel.core.cursor import Cursor
from bushel.core.node import Node, walk
from bushel.core.state import State, by_name, children, copy_state
from bushel.run.build import build_stream

# Elements that are processed together.
_AT_ONCE = 64


def state_of_rows(node: Node | None, state: State) -> State:
    """A state as if the packer had read only the elements in the rows that it has delivered.

    It is for counting, not for resuming. With several packers, or lanes of one, the state is
    unchanged: groups count when all of their rows were delivered.
    """
    packers = [] if node is None else [step for step in walk(node) if isinstance(step, PackNode)]
    found = list(_packed(state, ()))
    if len(packers) != 1 or len(found) != 1 or not found[0][1]["next_row"]:
        return state
    (path, packed), state = found[0], copy_state(state)
    counted = _after_rows(packers[0], packed)
    if counted is not None:
        _at(state, path)["parent"] = counted
    return state


def _packed(state: State, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], State]]:
    if {"parent", "next_row", "counter"} <= state.keys():
        yield path, state
    for place, child in children(state):
        yield from _packed(child, path + place)


def _at(state: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        state = state[int(name)] if isinstance(state, list) else state[name]
    return state


def _after_rows(packer: PackNode, state: State) -> State | None:
    """The state of a packer's input after the elements in the delivered rows."""
    used = state["next_row"]
    machine = packer.machine()
    machine.begin(None)
    states = [state["parent"]]  # And the state after each element.
    stream = build_stream(packer.input)
    try:
        cursor = Cursor(stream)
        cursor.restore(copy_state(state["parent"]))
        ended = False
        while not ended:
            rows, start, failure = cursor.look_ahead(_AT_ONCE, False)
            if failure is None and not len(rows):
                break
            for index in range(start, len(rows)):
                try:
                    ended = not machine.add(rows[index])
                except Exception:  # It was raised when the group was made.
                    cursor.pass_over(1)
                    continue
                if ended:
                    break
                cursor.pass_over(1)
                marks, place, _ = cursor.mark()
                states.append(marks.at(place))
    finally:
        stream.close()
    machine.end(state["counter"] - used)
    members = islice(machine.members(len(states) - 1), used)
    numbers = sorted({number + 1 for number in chain.from_iterable(members)})
    if not numbers:
        return None
    counted: State = copy_state(states[numbers[-1]])
    left_out = set(range(1, numbers[-1])) - set(numbers)
    for number in left_out:
        before = dict(_mixtures(states[number - 1], ()))
        for path, taken in _mixtures(states[number], ()):
            for name, count in taken.items():
                more = count - before.get(path, {}).get(name, 0)
                _take_back(_at(counted, path), name, more)
    return counted


def _mixtures(
    state: State, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], dict[str, int]]]:
    if "taken" in state:
        yield path, by_name(state["taken"])
    for place, child in children(state):
        yield from _mixtures(child, path + place)


def _take_back(mixture: State, name: str, count: int) -> None:
    taken = mixture["taken"]
    taken[name if isinstance(taken, dict) else int(name)] -= count
    for field in ("parents", "iterators_in_use_states"):
        part = by_name(mixture.get(field)).get(name)
        # (A part that has begun again meanwhile keeps the count of the new epoch.)
        if isinstance(part, dict) and part.get("in_epoch", -1) >= count:
            part["in_epoch"] -= count
