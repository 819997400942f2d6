"""`BadRecord`: what is noted about a record that fails; how guards note them in any thread.

While a block is evaluated, on any thread, its guards note the bad records in it. The caller that
asked for the block passes the notes on, up to the stream, which counts them in order
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
# The most characters of a reason in the quarantine file.
_MOST_CHARACTERS = 1000
# The most bad records that are logged; the quarantine file has all.
_TOLD = 5


@plain
class BadRecord:
    """One bad record: its guard, its position, the error and its place."""

    # The number of the guard in the pipeline, and the position of the element there.
    guard: int
    position: int
    operation: str
    error: str
    reason: str
    # File, record and offset, if the source told them.
    noted: tuple[str, int, int | None] | None
    # Its place, as far as "source", "key", "file", "record" and "offset" are known.
    place: dict[str, Any]

    def line(self) -> dict[str, Any]:
        """The line of the quarantine file."""
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
    """Notes of guards on this thread; None if they are not collected."""

    taken: list[BadRecord] | None = None


_notes = _ThreadNotes()


@contextmanager
def taking_notes() -> Iterator[list[BadRecord]]:
    """Collects notes of guards on this thread."""
    before, taken = _notes.taken, []  # type: ignore[var-annotated]
    _notes.taken = taken
    try:
        yield taken
    finally:
        _notes.taken = before


def note(guard: Guard, number: int, position: int, error: Exception) -> None:
    """Notes a bad record at a position, if notes are collected."""
    if _notes.taken is not None:
        _notes.taken.append(bad_record(guard, number, position, error))


def pass_on(records: Sequence[BadRecord]) -> None:
    """Notes bad records that were collected earlier, if notes are collected."""
    if _notes.taken is not None:
        _notes.taken += records
