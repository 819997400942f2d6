"""`on_error`: its node, and what replaces an element that fails."""

import copy
from typing import Any

from bushel.core.frozen import frozen
from bushel.core.node import Guard, Node
from bushel.core.options import OnError
from bushel.errors import BadRecordsError, FatalElementError, FilterError

# Errors that no single record is to blame for: a budget before this one is used up, or a filter
# drops nearly everything. Passed over, they would never be heard of. The same goes for an element
# that ended workers: it may have been the record, or a want of memory.
_NO_RECORDS = (BadRecordsError, FilterError, FatalElementError)


@frozen
class GuardNode(Guard):
    """Leaves out, or replaces, the elements of its input that fail."""

    input: Node
    skips: bool
    replacement: Any
    # What counts as a bad record; anything else is raised as ever.
    errors: tuple[type[Exception], ...]
    # Most bad records before it is an error; None for any number.
    budget: int | None
    # Path of the file in which bad records are listed.
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
        return copy.deepcopy(self.replacement)  # Elements belong to the user, each for itself.

    def describe(self) -> str:
        return "on_error('skip')" if self.skips else "on_error('replace')"


def guarded(node: Node, options: OnError) -> Node:
    """A node with what is to be done about its failures; itself where they are raised."""
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
