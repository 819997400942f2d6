"""The node that says what becomes of elements that cannot be made."""

import copy
from typing import Any

from bushel.core.frozen import frozen
from bushel.core.node import Guard, Node
from bushel.core.options import OnError
from bushel.errors import BadRecordsError, FatalElementError, FilterError

# What is told of the stream as a whole: that a budget before this one is used up, or that a
# filter leaves nearly nothing. To pass over it would be to never hear of it. And what ended
# workers, of which nobody knows that it was the record and not a want of memory.
_NO_RECORDS = (BadRecordsError, FilterError, FatalElementError)


@frozen
class GuardNode(Guard):
    """Leaves out, or replaces, the elements of its input that fail."""

    input: Node
    skips: bool
    replacement: Any
    # What counts as a bad record; anything else is raised as ever.
    errors: tuple[type[Exception], ...]
    # More than so many are an error; None for any number.
    budget: int | None
    # The path of the file in which they are listed.
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
