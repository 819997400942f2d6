"""Pickles exceptions: the same type, with the traceback as text and as frames.

The text has all details; the frames are for debuggers.
"""

import pickle
import traceback
from types import TracebackType
from typing import Any

from bushel.core.block import Failure
from bushel.core.frozen import plain
from bushel.errors import FatalElementError, WorkerError, notes_of
from bushel.transport.frames import CodePlace, places_in, traceback_of
from bushel.transport.own_classes import dump_own


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as its cause."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


@plain
class PackedFailure:
    """A pickled exception, and its traceback."""

    pickled: bytes | None
    shown: str
    notes: list[str]
    text: str
    places: list[CodePlace]


def pack_failure(failure: Failure) -> PackedFailure:
    """Makes a failure ready to travel; whatever the exception is, some error arrives."""
    error = failure.release()
    trace: TracebackType | None = _TRACEBACK.__get__(error)
    parts = (_shown(error), notes_of(error), _formatted(error, trace), places_in(trace))
    for pickle_it in (_pickled, _pickled_by_parts):
        try:
            return PackedFailure(pickle_it(error), *parts)
        except BaseException:  # A user's method may even try to end the process.
            continue
    return PackedFailure(None, *parts)


# Those of the base class, whatever the exception's class does with attributes.
_TRACEBACK, _CAUSE = (BaseException.__dict__[name] for name in ("__traceback__", "__cause__"))


def _shown(error: Exception) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}: {_text_of(error)}"


def _formatted(error: Exception, trace: TracebackType | None) -> str:
    try:
        text = "".join(traceback.format_exception(error)).rstrip()
    except BaseException:
        text = "".join([*traceback.format_tb(trace), _shown(error)])
        trace = None
    return text if trace is not None else f"Traceback (most recent call last):\n{text}"


def _pickled_by_parts(error: Exception) -> bytes:
    """For an exception whose `__init__` takes other arguments than `args`."""
    parts = (type(error), error.args, vars(error))
    pickled = dump_own(_ExceptionParts(*parts))
    pickle.loads(pickled)
    return pickled


class _ExceptionParts:
    """The parts of an exception; unpickled, they become the exception."""

    def __init__(self, kind: type, args: tuple[Any, ...], state: dict[str, Any]) -> None:
        self._kind, self._args, self._state = kind, args, state

    def __reduce__(self) -> tuple[Any, ...]:
        return _put_together, (self._kind, self._args, self._state)


def _put_together(kind: Any, args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except BaseException:
        return "(an exception whose text cannot be made)"


def _pickled(error: Exception) -> bytes:
    try:
        pickled = pickle.dumps(error, protocol=5)
    except Exception:
        pickled = dump_own(error)
    # An exception whose `__init__` takes other arguments fails here, not in the other process.
    again = pickle.loads(pickled)
    if type(again).__name__ != type(error).__name__:
        raise TypeError(type(again))
    return pickled


def unpack_failure(packed: PackedFailure) -> Failure:
    """Makes the exception again; one that cannot be made becomes a WorkerError that shows it."""
    error: Any = None
    if packed.pickled is not None:
        try:
            error = pickle.loads(packed.pickled)
        except (Exception, SystemExit):
            error = None
    if not isinstance(error, Exception):
        error = WorkerError(
            f"{packed.shown}\n(An exception that cannot be pickled; its traceback is above.)"
        )
        for note in packed.notes:
            error.add_note(note)
    if not isinstance(error, FatalElementError):  # That is the trainer's own.
        _CAUSE.__set__(error, RemoteTraceback(packed.text))
    return Failure(BaseException.with_traceback(error, traceback_of(packed.places)))
