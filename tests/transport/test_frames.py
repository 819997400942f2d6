"""A traceback that was taken apart and made again is shown as the one that it was."""

import traceback
from types import TracebackType

from bushel.transport.frames import places_in, traceback_of


def _divide(number: int) -> float:
    return 1 / number


def _deep(depth: int) -> float:
    return _deep(depth - 1) if depth else _divide(0)


def _caught(depth: int) -> TracebackType | None:
    try:
        _deep(depth)
    except ZeroDivisionError as error:
        return error.__traceback__
    raise AssertionError


def _lines(trace: TracebackType | None) -> list[tuple[str, int | None, str, str | None]]:
    return [(one.filename, one.lineno, one.name, one.line) for one in traceback.extract_tb(trace)]


def test_the_same_lines_without_marks() -> None:
    trace = _caught(2)
    made = traceback_of(places_in(trace))
    assert _lines(made) == _lines(trace)
    assert _lines(made)[-1][2:] == ("_divide", "return 1 / number")
    assert not any("^" in line for line in traceback.format_tb(made))
    assert made is not None
    # What a debugger goes by.
    last = [frame for frame, _ in traceback.walk_tb(made)][-1]
    assert (last.f_code.co_name, last.f_lineno) == ("_divide", 10)
    assert last.f_globals["__name__"] == __name__


def test_of_a_function_that_calls_itself_both_ends_are_kept() -> None:
    made = _lines(traceback_of(places_in(_caught(500))))
    assert len(made) == 100
    assert [name for _, _, name, _ in (*made[:2], *made[-2:])] == [
        "_caught",
        "_deep",
        "_deep",
        "_divide",
    ]


def test_nothing() -> None:
    assert traceback_of(places_in(None)) is None
