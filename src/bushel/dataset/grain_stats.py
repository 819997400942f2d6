"""Statistics methods of Grain's datasets, for users' subclasses that call them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

T = TypeVar("T")


class NoStats:
    """Measures nothing. Programs written for Grain call these from `__getitem__` of their own.

    >>> with NoStats().record_self_time():
    ...     NoStats().record_output_spec(3)
    3
    """

    output_spec = None

    def record_self_time(
        self, *, num_elements: int = 1, offset_ns: int = 0
    ) -> AbstractContextManager[None]:
        """Times the statements within it, in Grain."""
        return nullcontext()

    def record_output_spec(self, element: T) -> T:
        """Takes note of what an element looks like, in Grain."""
        return element

    def record_output_spec_for_batch(self, elements: Sequence[T]) -> Sequence[T]:
        """Does so for several, in Grain."""
        return elements

    def record_bytes_consumed(self, element: Any) -> Any:
        """Counts bytes, in Grain."""
        return element

    def record_bytes_produced(self, element: Any) -> Any:
        """Counts bytes, in Grain."""
        return element

    def report(self) -> None:
        """Tells what was measured, in Grain."""
