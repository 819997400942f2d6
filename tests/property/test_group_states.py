"""States of chains of steps that make groups: one path through the chain tells how far it read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel import IterDataset, MapDataset, ReadOptions, transforms
from bushel.core.state import State
from bushel.experimental import (
    FlatMapIterDataset,
    InterleaveIterDataset,
    RebatchIterDataset,
    WindowShuffleIterDataset,
    ZipIterDataset,
)
from bushel.order import group_marks
from bushel.order.group_marks import Group
from bushel.order.mix_held import with_held, with_seen
from tests.property.profile import tried

INLINE = ReadOptions(0, 0)


class Copies(transforms.FlatMap):
    """Makes up to two copies of a number."""

    max_fan_out = 2

    def __init__(self, shift: int) -> None:
        self._shift = shift

    def flat_map(self, element: int) -> list[Any]:
        return [element] * ((element + self._shift) % 3)


def total(element: Any) -> int:
    if isinstance(element, tuple):
        return sum(map(total, element))
    parts = element.values() if isinstance(element, dict) else [element]
    return int(sum(np.sum(part) for part in parts))


def document(number: int) -> dict[str, Any]:
    return {"t": np.full(number % 5 + 1, number % 100)}


def fails_at(rest: int) -> Callable[[int], int]:
    def check(number: int) -> int:
        if number % 13 == rest:
            raise ValueError(number)
        return number

    return check


STEPS: dict[str, Callable[[Any, int], Any]] = {
    "window_shuffle": lambda ds, n: WindowShuffleIterDataset(ds, window_size=n, seed=n),
    "shuffle": lambda ds, n: ds.shuffle(2 * n, seed=n),
    "windows": lambda ds, n: ds.windows(n, 2).map(total),
    "flat_map": lambda ds, n: FlatMapIterDataset(ds, Copies(n)),
    "pack": lambda ds, n: ds.map(document).pack({"t": 6}, bins=n).map(total),
    "split": lambda ds, n: ds.map(document).pack({"t": n}, strategy="concat_then_split").map(total),
    "rebatch": lambda ds, n: RebatchIterDataset(ds.batch(n), batch_size=3).map(total),
    "unbatch": lambda ds, n: ds.batch(n).unbatch(),
    "filter": lambda ds, n: ds.filter(lambda x: x % (n + 1)),
    "count": lambda ds, n: ds.map_with_index(lambda i, x: x + i % n),
    "fail": lambda ds, n: ds.map(fails_at(n)),
    "skip": lambda ds, n: ds.map(fails_at(n)).on_error("skip"),
    "repeat": lambda ds, n: ds.repeat(n),
}
RAMP = bushel.WeightSchedule.linear([(0, [1, 3]), (30, [2, 1])])
JOINS: dict[str, Callable[[list[Any]], Any]] = {
    "mix": lambda parts: IterDataset.mix(parts, [2, 1]),
    "ramp": lambda parts: IterDataset.mix(parts, RAMP, on_end="drop"),
    "restart": lambda parts: IterDataset.mix(parts, RAMP, on_end="restart"),
    "interleave": lambda parts: InterleaveIterDataset(parts, cycle_length=2),
    "one_by_one": lambda parts: InterleaveIterDataset(parts, cycle_length=1),
    "zip": lambda parts: ZipIterDataset(parts, strict=False).map(total),
    "concatenate": IterDataset.concatenate,
}

_chains = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 6)), max_size=3)
_joins = st.lists(st.tuples(st.sampled_from(sorted(JOINS)), _chains), min_size=1, max_size=3)


def stream_of(length: int, joins: list[Any]) -> Any:
    """A mixture with steps after it, joined to others with steps after them."""
    base = [MapDataset.range(n, n + length).to_iter_dataset(INLINE) for n in range(4)]
    ds: Any = IterDataset.mix([base[0].filter(lambda x: x % 2), base[1]], RAMP)
    for number, (join, steps) in enumerate(joins):
        ds = JOINS[join]([ds, base[2 + number % 2]])
        for step, argument in steps:
            ds = STEPS[step](ds, argument)
    return ds


def plain_state(group: Group) -> State:
    """The state of a group as it is defined: from the states of the input before and after it."""
    marks, used = group.start
    parent = marks.before(used) if group.latest_start else marks.at(used)
    if group.end is not None:
        last, count = group.end
        if group.is_held:
            parent = with_held(parent, lambda: last.at(count), group.is_last)
        else:
            parent = with_seen(parent, lambda: last.at(count))
    return group.around(parent)


def told_by(state: Any, plain: Any) -> Any:
    """A state, without those ends of mixtures that the plain one does not tell."""
    if isinstance(state, list):
        return [told_by(*pair) for pair in zip(state, plain, strict=True)]
    if not isinstance(state, dict):
        return state
    kept = {name: told_by(value, plain.get(name)) for name, value in state.items()}
    # An end counts where the group ends there. The definition forgets that of the last group when
    # this is handed out.
    if "ends" in kept and (plain.get("ends") is None or kept["ends"] != kept.get("front")):
        del kept["ends"]
    return kept


@given(st.integers(5, 40), _joins)
@tried
def test_a_state_is_that_of_its_definition(length: int, joins: Any) -> None:
    iterator = iter(stream_of(length, joins))
    for number in range(40):
        state = iterator.get_state()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(group_marks, "_state_in", plain_state)
            plain = iterator.get_state()
        assert told_by(state, plain) == told_by(plain, plain)
        if number == 15:
            iterator = iter(stream_of(length, joins))
            iterator.set_state(state)
        try:
            next(iterator)
        except StopIteration:
            break
        except (ValueError, bushel.errors.PlanError):
            continue
