"""`on_error`: its node, which errors it catches, and what replaces an element that fails."""

import copy
from typing import Any

from bushel.core.frozen import frozen
from bushel.core.node import Guard, Node
from bushel.core.options import OnError
from bushel.errors import BadRecordsError, FatalElementError, FilterError

# Errors for which no single record is to blame: an earlier budget has ended, or a filter drops
# nearly everything. If these were skipped, the user would never see them. The same holds for an
# element that killed workers: the cause may be the record, or a lack of memory.
_NO_RECORDS = (BadRecordsError, FilterError, FatalElementError)


@frozen
class GuardNode(Guard):
    """Drops, or replaces, the elements of its input that fail."""

    input: Node
    skips: bool
    replacement: Any
    # The errors that make a bad record; all others are raised.
    errors: tuple[type[Exception], ...]
    # The most bad records before an error is raised; None for any number.
    budget: int | None
    # The path of the file that lists bad records.
    quarantine: str | None

    @property
    def drops(self) -> bool:
        return self.skips

    def catches(self, error: Exception) -> bool:
        return isinstance(error, self.errors) and not isinstance(error, _NO_RECORDS)

    def stand_in(self, error: Exception) -> Any:
        if self.skips:
            return None
        if callable(self.replacement):
            return self.replacement(error)
        return copy.deepcopy(self.replacement)  # Each element belongs to the user.

    def describe(self) -> str:
        return "on_error('skip')" if self.skips else "on_error('replace')"


def guarded(node: Node, options: OnError) -> Node:
    """A node with a guard for its failures; the node itself if failures are raised."""
    if options.policy == "raise":
        return node
    return GuardNode(
        node,
        options.policy == "skip",
        options.replacement,
        options.errors,
        options.budget,
        options.quarantine,
    )
