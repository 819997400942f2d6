"""The length of an element, by the user's feature or function, for token batches and buckets."""

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from bushel.core.frozen import plain
from bushel.core.naming import name_of
from bushel.errors import BatchError

# The name of a feature, a function of an element, or None for elements that are arrays.
Length: TypeAlias = str | Callable[[Any], int] | None


@plain
class LengthOf:
    """Measures elements for an operation, which messages name.

    >>> LengthOf("tokens", "batch_by_tokens")({"tokens": [5, 6, 7]})
    3
    """

    length: Length
    operation: str

    def __call__(self, element: Any) -> int:
        length = self.length
        if callable(length):
            try:
                size = operator.index(length(element))
            except TypeError as error:
                raise BatchError(
                    f"the `length` function of `{self.operation}`, {name_of(length)}, must return "
                    f"a whole number: {error}."
                ) from error
            if size < 0:
                raise BatchError(
                    f"the `length` function of `{self.operation}`, {name_of(length)}, returned "
                    f"{size}, and a length cannot be negative."
                )
            return size
        if length is None and isinstance(element, dict):
            raise BatchError(
                f"`{self.operation}` needs the feature that gives the length of an element: "
                f"write `length=` with one of {sorted(element)}, or a function of the element."
            )
        value = element
        if length is not None:
            if not isinstance(element, dict) or length not in element:
                has = sorted(element) if isinstance(element, dict) else type(element).__name__
                raise BatchError(
                    f"`{self.operation}` takes the length of feature {length!r}, and this element "
                    f"has no such feature: {has}."
                )
            value = element[length]
        try:
            return len(value)
        except TypeError as error:
            raise BatchError(
                f"`{self.operation}` needs something that has a length, and got "
                f"{type(value).__name__}: {value!r:.100}. Make it an array in a `map` before, or "
                "write `length=` with a function of the element."
            ) from error

    def describe(self) -> str:
        """The name of a feature; a function may be renamed, and is not part of a state."""
        return f", length={self.length!r}" if isinstance(self.length, str) else ""


def check_length(length: Any, operation: str) -> Length:
    """Returns the function that measures an element."""
    if length is not None and not isinstance(length, str) and not callable(length):
        raise TypeError(
            f"`{operation}`: `length` is the name of a feature or a function of an element, and "
            f"not {length!r:.100}."
        )
    checked: Length = length
    return checked
