"""The base class of objects that are closed at the end of a `with` statement."""

from types import TracebackType
from typing import Self


class Closing:
    """A context manager that closes itself at the end of the `with` statement."""

    __slots__ = ()

    def close(self) -> None:
        """Releases its resources; may be called again."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
