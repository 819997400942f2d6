"""Reconstructs the frames of another process's traceback.

A traceback is a chain of frames, and a frame cannot leave its process. But running a single
`raise`, in code that claims another file, function and line, makes a frame that `traceback`, pytest
and a post-mortem debugger show like the original. It has no local variables.
"""

from collections.abc import Sequence
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

# The most frames kept of a traceback, at both ends: longer ones are recursions.
_MOST = 100


class CodePlace(NamedTuple):
    """A line of a traceback."""

    file: str
    function: str
    module: str
    line: int


def places_in(traceback: TracebackType | None) -> list[CodePlace]:
    """The places through which an exception passed, the outermost first."""
    places = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        module = traceback.tb_frame.f_globals.get("__name__", "")
        line = traceback.tb_lineno or code.co_firstlineno
        places.append(CodePlace(code.co_filename, code.co_name, str(module), line))
        traceback = traceback.tb_next
    return places if len(places) <= _MOST else [*places[: _MOST // 2], *places[-_MOST // 2 :]]


def traceback_of(places: Sequence[CodePlace]) -> TracebackType | None:
    """A traceback with frames at these places."""
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
    """A code's line table in which everything is on the first line, in unknown columns.

    Otherwise a debugger would mark the columns of this file's `raise`. An entry is a byte with its
    kind (13: a line and no columns) and the number of instructions that it covers, up to 8; then
    comes the difference to the line before.
    """
    entries = bytearray()
    for start in range(0, instructions, 8):
        entries += bytes([0x80 | 13 << 3 | min(8, instructions - start) - 1, 0])
    return bytes(entries)


class _Here(Exception):
    """Raised to make a frame."""
