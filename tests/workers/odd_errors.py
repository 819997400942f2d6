"""Exceptions that users raise, odd ones among them."""

import os
import threading
from typing import Any


class Mine(Exception):
    """An ordinary one of the user's own."""


class WithFields(Exception):
    """Carries more than its message."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class TwoArguments(Exception):
    """Cannot be made again from its message: pickle would call it with one argument."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


class KeywordsOnly(Exception):
    """The same, with keywords."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"reason: {reason}")


class HoldsALock(Exception):
    """Cannot be pickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


class LockAsArgument(Exception):
    """Cannot be pickled either."""


class RefusesToReduce(Exception):
    """Raises when it is pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not to be pickled")


class ComesBackAsAnother(Exception):
    """Is no exception any more when it is unpickled."""

    def __reduce__(self) -> Any:
        return str, ("no exception",)


class NoText(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class CallsBack(Exception):
    """Has an `__init__` that fails when it is called in another process."""

    calls = 0

    def __init__(self, message: str) -> None:
        super().__init__(message)
        CallsBack.calls += 1
        if CallsBack.calls > 1:
            raise RuntimeError("made twice")


class TakesNoNotes(Exception):
    """Raises when it is asked for its notes."""

    @property
    def __notes__(self) -> Any:
        raise RuntimeError("no notes")


class TakesNoAttributes(Exception):
    """Raises when anything is added to it, a note among that."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"no {name}")


class HasOddNotes(Exception):
    """Has a number for its notes, to which nothing can be added."""

    __notes__ = 5


class EndsProcesses(Exception):
    """Ends the process when it is shown or pickled."""

    def __str__(self) -> str:
        raise SystemExit(4)

    def __reduce__(self) -> Any:
        raise SystemExit(5)


def raise_with_cause() -> None:
    try:
        {}["inner"]
    except KeyError as error:
        raise Mine("outer") from error


def raise_group() -> None:
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


def raise_it(error: BaseException) -> None:
    raise error


def noted(error: Exception, *notes: str) -> Exception:
    for note in notes:
        error.add_note(note)
    return error


# What arrives as it was raised.
PLAIN = {
    "ValueError": lambda: raise_it(ValueError("bad value")),
    "KeyError": lambda: raise_it(KeyError("label")),
    "no message": lambda: raise_it(ValueError()),
    "two messages": lambda: raise_it(ValueError("a", 2)),
    "OSError": lambda: os.stat("/no/such/file"),
    "UnicodeDecodeError": lambda: b"\xff".decode(),
    "ZeroDivisionError": lambda: 1 / 0,
    "StopIteration": lambda: next(iter([])),
    "AssertionError": lambda: raise_it(AssertionError("not so")),
    "MemoryError": lambda: raise_it(MemoryError("too large")),
    "own": lambda: raise_it(Mine("mine")),
    "own, with fields": lambda: raise_it(WithFields("fields", 7)),
    "with notes": lambda: raise_it(noted(ValueError("noted"), "a note of the user's")),
    "with a cause": raise_with_cause,
    "a group": raise_group,
}
# What cannot, with what must be said of it.
ODD = {
    "two arguments": (lambda: raise_it(TwoArguments(7, "seven")), "TwoArguments", "7: seven"),
    "keywords only": (lambda: raise_it(KeywordsOnly(reason="rhyme")), "KeywordsOnly", "rhyme"),
    "holds a lock": (lambda: raise_it(HoldsALock("locked")), "HoldsALock", "locked"),
    "a lock as argument": (
        lambda: raise_it(LockAsArgument("in words", threading.Lock())),
        "LockAsArgument",
        "in words",
    ),
    "refuses to reduce": (lambda: raise_it(RefusesToReduce("why")), "RefusesToReduce", "why"),
    "comes back as another": (lambda: raise_it(ComesBackAsAnother("was")), "ComesBack", "was"),
    "no text": (lambda: raise_it(NoText("hidden")), "NoText", ""),
    "ends processes": (lambda: raise_it(EndsProcesses("gone")), "EndsProcesses", "gone"),
    "calls back": (lambda: raise_it(CallsBack("once only")), "CallsBack", "once only"),
}
# Those to which nothing can be added, and what is told of them.
BARE = {
    "takes no notes": (lambda: raise_it(TakesNoNotes("bare")), "TakesNoNotes", "bare"),
    "takes no attributes": (lambda: raise_it(TakesNoAttributes("own")), "TakesNoAttr", "own"),
    "has odd notes": (lambda: raise_it(HasOddNotes("five")), "HasOddNotes", "five"),
}


def fail_at(number: int) -> int:
    """Every third number fails, each in its way."""
    failures = list(PLAIN.values())
    if number % 3 == 1:
        failures[number // 3]()
    return number
