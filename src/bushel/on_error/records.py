"""Records that could not be read or made: what is told of them, how many, and where.

While a block is evaluated, on whatever thread, the guards in it note what they passed over.
Whoever asked for the block takes the notes along, up to the stream, which counts them in order.
The count is part of its state: a budget is used up at the same record whoever does the work,
and however often the stream was stopped and resumed.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bushel.core.fields import Kind, Limit, Path, Relation
from bushel.core.frozen import plain
from bushel.core.node import Choice, Guard, Node, walk
from bushel.core.places import ToStreamNode
from bushel.core.state import State
from bushel.errors import BadRecordsError, FileError, StateError, place_noted, where_raised
from bushel.order.keys import record_of

_log = logging.getLogger("bushel")
# What a line of the quarantine file says of a reason.
_MOST_CHARACTERS = 1000
# So many are told by the log; the file has them all.
_TOLD = 5


@plain
class BadRecord:
    """What is told of one bad record."""

    # Which guard of the pipeline passed over it, and the position of the element there.
    guard: int
    position: int
    operation: str
    error: str
    reason: str
    # File, record and offset, where the source told.
    noted: tuple[str, int, int | None] | None
    # Where it is: what is known of "source", "key", "file", "record" and "offset".
    place: dict[str, Any]

    def line(self) -> dict[str, Any]:
        """What the quarantine file says."""
        return {
            "position": self.position,
            **self.place,
            "operation": self.operation,
            "error": self.error,
            "reason": self.reason,
        }


def bad_record(guard: Guard, number: int, position: int, error: Exception) -> BadRecord:
    """Describes the failure of the element at a position."""
    operation = (where_raised(error) or (guard.input.label, position))[0]
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    try:
        reason = str(error)[:_MOST_CHARACTERS]
    except Exception:
        reason = "(it cannot be shown)"
    return BadRecord(number, position, operation, kind, reason, place_noted(error), {})


def _place(guard: Guard, record: BadRecord) -> dict[str, Any]:
    """Where a bad record is, as far as the pipeline tells."""
    place: dict[str, Any] = {}
    noted = record.noted
    found = None if _joins_streams(guard.input) else record_of(guard.input, record.position)
    if found is not None:
        source, key = found
        place = {"source": source.label, "key": key if isinstance(key, (int, str)) else repr(key)}
        place_of = getattr(getattr(source, "source", None), "place_of", None)
        if noted is None and callable(place_of):
            try:
                noted = place_of(key)
            except Exception:  # The file may be gone by now; then it is not known.
                noted = None
    if noted is not None:
        place |= {"file": noted[0], "record": noted[1], "offset": noted[2]}
    return place


def _joins_streams(node: Node) -> bool:
    """Whether several streams are joined: then a position does not tell a record of theirs."""
    return any(
        isinstance(step, Choice) and any(isinstance(below, ToStreamNode) for below in walk(step))
        for step in walk(node)
    )


class _Notes(threading.local):
    """What guards note on this thread; None where nobody asked."""

    taken: list[BadRecord] | None = None


_notes = _Notes()


@contextmanager
def taking_notes() -> Iterator[list[BadRecord]]:
    """Gathers what guards note on this thread."""
    before, taken = _notes.taken, []  # type: ignore[var-annotated]
    _notes.taken = taken
    try:
        yield taken
    finally:
        _notes.taken = before


def note(guard: Guard, number: int, position: int, error: Exception) -> None:
    """Notes that a guard passed over a position, if somebody asked."""
    if _notes.taken is not None:
        _notes.taken.append(bad_record(guard, number, position, error))


def pass_on(records: Sequence[BadRecord]) -> None:
    """Notes what was gathered before, if somebody asked."""
    if _notes.taken is not None:
        _notes.taken += records


class Ledger:
    """Counts the bad records of a stream, in its order, for each of its guards."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = guards
        self.counts = [0] * len(guards)
        self._told = 0

    def enter(self, record: BadRecord) -> BadRecordsError | None:
        """Takes note of one; returns the error if there are more than the budget allows."""
        guard = self._guards[record.guard]
        self.counts[record.guard] += 1
        # Here, and not in a worker, which knows only its part of the pipeline.
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
        return f" (further ones are not told here{where})"

    def has_room_for(self, records: Sequence[BadRecord]) -> bool:
        """Whether so many more are within the budgets."""
        counts = list(self.counts)
        for record in records:
            counts[record.guard] += 1
        budgets = [guard.budget for guard in self._guards]
        return all(
            budget is None or count <= budget or count == before
            for before, count, budget in zip(self.counts, counts, budgets, strict=True)
        )

    def restore(self, counts: Sequence[int]) -> None:
        """Goes on from the counts of a state."""
        self.counts = list(counts)


class BadCounts(Kind):
    """How many bad records each guard has passed over, in a state."""

    def __init__(self, guards: int, within: Limit | None = None, *, optional: bool = False) -> None:
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
    if not isinstance(state, dict):
        return []
    own = state.get("bad", [])
    return [*bad_records_in(state.get("parent")), *(own if isinstance(own, list) else [])]


def with_bad_records(state: dict[str, Any], more: Sequence[int]) -> dict[str, Any]:
    """The same state with so many more counted, the innermost step first.

    >>> with_bad_records({"parent": {"next_index": 5, "bad": [2]}, "bad": [1]}, [10, 20])
    {'parent': {'next_index': 5, 'bad': [12]}, 'bad': [21]}
    """
    if not any(more):
        return state
    changed, _ = _recounted(state, list(more))
    return dict(changed)


def _recounted(state: Any, more: list[int]) -> tuple[Any, list[int]]:
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


def _show(record: BadRecord) -> str:
    place = record.place
    if "file" in place:
        where = f"record {place['record']} of {place['file']!r}"
    elif "key" in place:
        where = f"record {place['key']} of {place['source']}"
    else:
        where = f"position {record.position}"
    return f"{where}, in `{record.operation}`: {record.error}: {record.reason}"


class Quarantine:
    """A file of JSON lines, one for each bad record; each is in it once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._known: set[str] = set()
        try:
            with open(path, encoding="utf-8") as file:
                self._known = {line.rstrip("\n") for line in file}
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"the quarantine file {path!r} cannot be read: {error}.") from None

    def add(self, record: BadRecord) -> None:
        """Writes a line, unless it is there: after a restore a record may come again."""
        import json

        line = json.dumps(record.line(), default=repr)
        with self._lock:
            if self._known and not os.path.exists(self._path):
                self._known.clear()  # Somebody took the file away, and a new one is begun.
            if line in self._known:
                return
            try:
                # One write of one line at the end: lines of several processes do not mix.
                descriptor = os.open(
                    self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
                )
                try:
                    os.write(descriptor, (line + "\n").encode())
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise FileError(
                    f"the quarantine file {self._path!r} cannot be written: {error.strerror}."
                ) from None
            self._known.add(line)


_quarantines: dict[str, Quarantine] = {}


def quarantine(path: str) -> Quarantine:
    """The quarantine file of a path, one for all streams of this process."""
    whole = os.path.abspath(path)
    found = _quarantines.get(whole)
    if found is None:
        found = _quarantines.setdefault(whole, Quarantine(whole))
    return found
