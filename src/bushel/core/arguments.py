"""Checks of arguments that operations share; the errors of mistyped names and missing methods."""

import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from bushel.errors import PlanError

F = TypeVar("F", bound=Callable[..., Any])


def whole(value: Any, name: str) -> int:
    """Returns an argument that must be a whole number.

    >>> whole(8, "batch_size")
    8
    >>> whole("8", "batch_size")
    Traceback (most recent call last):
        ...
    TypeError: batch_size must be an integer, and is '8', a str.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be an integer, and is {value!r:.100}, a {type(value).__name__}."
        ) from None


def positive(operation: str, name: str, value: Any) -> int:
    """Returns an argument that must be a positive number."""
    number = whole(value, name)
    if number <= 0:
        raise PlanError(f"`{operation}`: {name} must be positive, and is {number}.")
    return number


def real(value: Any, name: str) -> float:
    """Returns an argument that must be a number, whole or not.

    >>> real("0.5", "seconds")
    Traceback (most recent call last):
        ...
    TypeError: seconds must be a number, and is '0.5', a str.
    """
    if isinstance(value, (str, bytes, bytearray)) or not hasattr(type(value), "__float__"):
        raise TypeError(
            f"{name} must be a number, and is {value!r:.100}, a {type(value).__name__}."
        )
    return float(value)


def meant(name: str, names: Iterable[str]) -> str:
    """A sentence that suggests the names that a mistyped name may stand for.

    >>> meant("suffle", ["shuffle", "batch"])
    ' Did you mean `shuffle`?'
    """
    from difflib import get_close_matches  # Only for mistyped names.

    close = get_close_matches(name, list(names), n=1, cutoff=0.7)
    return f" Did you mean `{close[0]}`?" if close else ""


class NotThereError(AttributeError, TypeError):
    """A special method was used that there is not."""


class NotThere:
    """A special method that does not exist; its call raises an error with this text.

    >>> class Stream:
    ...     __getitem__ = NotThere("a stream has no positions")
    >>> Stream()[0]
    Traceback (most recent call last):
        ...
    bushel.core.arguments.NotThereError: a stream has no positions
    >>> hasattr(Stream(), "__getitem__")
    False
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, instance: object, owner: type) -> Any:
        raise NotThereError(self._text)


def explains(
    *, instead: Mapping[str, str] | None = None, missing: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """Adds to the error of a call with a wrong keyword what to write, or what is missing.

    `instead` are names that people write, with those of the arguments; `missing` are arguments
    that have to be given, with what they mean.
    """

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                text = _explained(str(error), function.__name__, instead or {}, missing or {})
                # An error that was raised deeper in is not about this call.
                if text is None or error.__traceback__ is None or error.__traceback__.tb_next:
                    raise
                raise TypeError(text) from None

        return called  # type: ignore[return-value]

    return wrap


def _explained(
    text: str, function: str, instead: Mapping[str, str], missing: Mapping[str, str]
) -> str | None:
    """The message of a wrong call, with what to write; None for another message."""
    wrong = re.search(rf"{function}\(\) got an unexpected keyword argument '(\w+)'", text)
    if wrong and wrong[1] in instead:
        return f"{text.partition('. Did you mean')[0]}. Did you mean `{instead[wrong[1]]}`?"
    for name, meaning in missing.items():
        if re.search(rf"{function}\(\) missing .*'{name}'", text):
            return f"{text}: {meaning}"
    return None
