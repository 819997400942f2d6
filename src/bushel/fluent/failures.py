"""What becomes of records that cannot be read, or made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bushel.fluent.chain import Chain
from bushel.node import Guard
from bushel.options import OnError
from bushel.plan.guard import guarded

if TYPE_CHECKING:
    import os
    from typing import Self

T = TypeVar("T")


class Failures(Chain, Generic[T]):
    """Methods of a dataset about what fails in it."""

    def on_error(
        self,
        policy: str,
        *,
        replacement: Any = None,
        errors: type[Exception] | tuple[type[Exception], ...] = Exception,
        budget: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Says what becomes of elements for which a source or a function before this fails.

        "raise", as without it; "skip" leaves them out, as a filter does; "replace" puts
        something else in their place, so that everything keeps its position.

        >>> from bushel import MapDataset
        >>> texts = MapDataset.source(["1", "2", "three", "4"]).map(int)
        >>> list(texts.on_error("skip"))
        [1, 2, 4]
        >>> list(texts.on_error("replace", replacement=0).batch(2))
        [array([1, 2]), array([0, 4])]

        A stream counts them, and its states do, so a budget is used up at the same record for
        any number of workers, resumed or not. Elements asked for by their position are not
        counted. Bad records are told by the logger "bushel", the first few of them.

        Args:
          policy: "raise", "skip" or "replace".
          replacement: the element for "replace", or a function that makes it of the exception.
          errors: which exceptions mean that a record is bad; others are raised.
          budget: with more bad records than that `BadRecordsError` is raised.
          quarantine: the path of a file that gets a line of JSON for each bad record, once:
            its file, record and offset where they are known, the operation, and the reason.
        """
        options = OnError(policy, replacement, errors, budget, quarantine)
        node = guarded(self._own_node(), options)
        return self._then(node) if isinstance(node, Guard) else self
