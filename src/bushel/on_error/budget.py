"""Counts bad records in the order of the stream and logs them; the error beyond the budget.

The count is part of a stream's state: a budget ends at the same record whichever thread or worker
evaluates it, and however often the stream was stopped and resumed.
"""

import logging
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from bushel.core.node import Choice, Guard, Node, walk
from bushel.core.places import ToStreamNode
from bushel.core.state import State, walk_states
from bushel.core.state_fields import Bound, FieldKind, Path, Relation
from bushel.errors import BadRecordsError, StateError
from bushel.on_error.bad_records import BadRecord
from bushel.on_error.quarantine import quarantine
from bushel.order.keys import record_of
from bushel.sources.stored_at import known_place

_log = logging.getLogger("bushel")
# The most bad records that are logged; the quarantine file has all.
_TOLD = 5


class Ledger:
    """Counts the bad records of a stream, in its order, for each of its guards."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = guards
        self.counts = [0] * len(guards)
        self._told = 0

    def enter(self, record: BadRecord) -> BadRecordsError | None:
        """Takes note of a bad record; returns the error if it is beyond the budget."""
        guard = self._guards[record.guard]
        self.counts[record.guard] += 1
        # Here, and not in a worker, which has only its part of the pipeline.
        record.place = _place(guard, record)
        if guard.quarantine is not None:
            quarantine(guard.quarantine).add(record)
        if self._told < _TOLD:
            self._told += 1
            _log.warning(
                "passed over a bad record: %s%s", _show(record), self._more(self._told, guard)
            )
        count = self.counts[record.guard]
        if guard.budget is None or count <= guard.budget:
            return None
        return BadRecordsError(
            f"{count} bad records are more than the budget of {guard.budget} that `on_error` was "
            f"given. The last one: {_show(record)}"
        )

    def _more(self, told: int, guard: Guard) -> str:
        if told < _TOLD:
            return ""
        where = f"; all are in {guard.quarantine!r}" if guard.quarantine is not None else ""
        return f" (further ones are not listed here{where})"

    def has_room_for(self, records: Sequence[BadRecord]) -> bool:
        """Whether these records, and those before them, are within the budgets."""
        counts = list(self.counts)
        for record in records:
            counts[record.guard] += 1
        budgets = [guard.budget for guard in self._guards]
        return all(
            budget is None or count <= budget or count == before
            for before, count, budget in zip(self.counts, counts, budgets, strict=True)
        )

    def restore(self, counts: Sequence[int]) -> None:
        """Continues from the counts of a state."""
        self.counts = list(counts)


class BadCounts(FieldKind):
    """The number of bad records of each guard, in a state."""

    def __init__(self, guards: int, within: Bound | None = None, *, optional: bool = False) -> None:
        self._guards, self._within, self.optional = guards, within, optional

    def below(self, value: Any, name: str, path: Path, state: State) -> Iterable[Any]:
        if not isinstance(value, list) or not all(type(count) is int for count in value):
            well = False
        else:
            well = len(value) == self._guards and all(0 <= n <= sys.maxsize for n in value)
        if not well:
            raise StateError(
                f"this state counts bad records as {value!r:.200} at {path}, and the pipeline has "
                f"{self._guards} `on_error` there: so many whole numbers, 0 or more, are needed."
            )
        return ()

    def relation(self, name: str) -> Relation | None:
        within = self._within
        if within is None:
            return None

        def too_many(state: State) -> str | None:
            counts, most = state.get(name, [0]), within.most(state)
            if most is None or max(counts) <= most:
                return None
            return f"{name!r} counts {max(counts)} bad records, and there are {most} {within.what}"

        return too_many


def bad_records_in(state: Any) -> list[int]:
    """The counts of bad records in a state, the innermost step first.

    >>> bad_records_in({"parent": {"next_index": 5, "bad": [2]}, "bad": [1]})
    [2, 1]
    """
    steps = reversed(list(walk_states(state)))
    return [count for step in steps for count in step.get("bad", ())]


def with_bad_records(state: dict[str, Any], more: Sequence[int]) -> dict[str, Any]:
    """The same state with `more` added to its counts, the innermost step first.

    >>> with_bad_records({"parent": {"next_index": 5, "bad": [2]}, "bad": [1]}, [10, 20])
    {'parent': {'next_index': 5, 'bad': [12]}, 'bad': [21]}
    """
    if not any(more):
        return state
    changed, _ = _recounted(state, list(more))
    return dict(changed)


def _recounted(state: Any, more: list[int]) -> tuple[Any, list[int]]:
    # Only along parents: workers count for streams of positions and the steps after those, which
    # have one input each.
    if not isinstance(state, dict):
        return state, more
    changed = dict(state)
    if "parent" in changed:
        changed["parent"], more = _recounted(changed["parent"], more)
    own = changed.get("bad")
    if isinstance(own, list):
        changed["bad"] = [count + extra for count, extra in zip(own, more, strict=False)]
        more = more[len(own) :]
    return changed, more


def _place(guard: Guard, record: BadRecord) -> dict[str, Any]:
    """The place of a bad record, as far as the pipeline tells."""
    place: dict[str, Any] = {}
    noted = record.noted
    found = None if _joins_streams(guard.input) else record_of(guard.input, record.position)
    if found is not None:
        source, key = found
        place = {"source": source.label, "key": key if isinstance(key, (int, str)) else repr(key)}
        if noted is None:
            noted = known_place(getattr(source, "source", None), key)
    if noted is not None:
        place |= {"file": noted[0], "record": noted[1], "offset": noted[2]}
    return place


def _joins_streams(node: Node) -> bool:
    """Whether streams are joined: then a position does not identify a record."""
    return any(
        isinstance(step, Choice) and any(isinstance(below, ToStreamNode) for below in walk(step))
        for step in walk(node)
    )


def _show(record: BadRecord) -> str:
    place = record.place
    if "file" in place:
        where = f"record {place['record']} of {place['file']!r}"
    elif "key" in place:
        where = f"record {place['key']} of {place['source']}"
    else:
        where = f"position {record.position}"
    return f"{where}, in `{record.operation}`: {record.error}: {record.reason}"
