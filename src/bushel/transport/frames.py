"""Reconstructs the frames of another process's traceback.

A traceback is a chain of frames, and a frame cannot leave its process. But a frame that comes of
running one `raise`, in code that says it is of such a file, function and line, is one that
`traceback`, pytest and a post-mortem debugger show in the same way. It has no local variables.
"""

from collections.abc import Sequence
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

# Frames that are kept of a traceback, at both ends: longer ones are of a recursion.
_MOST = 100


class CodePlace(NamedTuple):
    """A line of a traceback."""

    file: str
    function: str
    module: str
    line: int


def places_in(traceback: TracebackType | None) -> list[CodePlace]:
    """Where an exception came through, the outermost first."""
    places = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        module = traceback.tb_frame.f_globals.get("__name__", "")
        line = traceback.tb_lineno or code.co_firstlineno
        places.append(CodePlace(code.co_filename, code.co_name, str(module), line))
        traceback = traceback.tb_next
    return places if len(places) <= _MOST else [*places[: _MOST // 2], *places[-_MOST // 2 :]]


def traceback_of(places: Sequence[CodePlace]) -> TracebackType | None:
    """A traceback that leads through these places."""
    made: TracebackType | None = None
    for place in reversed(places):
        made = TracebackType(made, _frame_at(place), 0, place.line)
    return made


def _frame_at(place: CodePlace) -> FrameType:
    code: CodeType = compile("raise Here", place.file, "exec")
    code = code.replace(
        co_name=place.function,
        co_qualname=place.function,
        co_firstlineno=place.line,
        co_linetable=_on_the_first_line(len(code.co_code) // 2),
    )
    try:
        exec(code, {"__name__": place.module, "__file__": place.file, "Here": _Here})
    except _Here as here:
        assert here.__traceback__ is not None
        below = here.__traceback__.tb_next
        assert below is not None
        return below.tb_frame
    raise AssertionError("the code raises")


def _on_the_first_line(instructions: int) -> bytes:
    """The table of a code's lines: all of it is on the first one, in columns that nobody knows.

    Otherwise a part of the line would be marked that is a part of this file's `raise`. An entry is
    a byte with the kind of what follows (13: a line and no columns) and for how many instructions
    it is, up to 8, and then the difference to the line before.
    """
    entries = bytearray()
    for start in range(0, instructions, 8):
        entries += bytes([0x80 | 13 << 3 | min(8, instructions - start) - 1, 0])
    return bytes(entries)


class _Here(Exception):
    """Raised to have a frame."""
