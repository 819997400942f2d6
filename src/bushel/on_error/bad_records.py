"""Bad records: what is noted about each, and how guards note them.

While a block is evaluated, on whatever thread, the guards in it note what they passed over.
Whoever asked for the block takes the notes along, up to the stream, which counts them in order
(`on_error/budget.py`).
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bushel.core.frozen import plain
from bushel.core.node import Guard
from bushel.errors import place_noted, where_raised

_log = logging.getLogger("bushel")
# What a line of the quarantine file says of a reason.
_MOST_CHARACTERS = 1000
# Bad records that are logged; the quarantine file has them all.
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


class _ThreadNotes(threading.local):
    """What guards note on this thread; None where nobody asked."""

    taken: list[BadRecord] | None = None


_notes = _ThreadNotes()


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
