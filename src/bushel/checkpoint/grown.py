"""Decides whether a state fits a source that has grown since it was saved."""

import re
from collections.abc import Sequence

# The text of a source in states.
_SOURCE = re.compile(r"(source\(\w+, length=)(\d+)\)")
# Steps that keep elements in the same order, whatever the length.
_IN_ORDER = {
    "enumerate",
    "filter",
    "flat_map",
    "limit",
    "map",
    "map_with_index",
    "on_error",
    "random_map",
    "skip",
    "to_iter_dataset",
}


def growth(saved: Sequence[str], current: Sequence[str]) -> tuple[int, int] | None:
    """The number of records that the source of a pipeline had and has, if it has grown.

    >>> growth(["source(list, length=5)", "map"], ["source(list, length=8)", "map"])
    (5, 8)
    >>> growth(["source(list, length=8)", "map"], ["source(list, length=5)", "map"])
    """
    if not saved or not current:
        return None
    old, new = _SOURCE.fullmatch(saved[0]), _SOURCE.fullmatch(current[0])
    if old is None or new is None or old[1] != new[1] or int(old[2]) >= int(new[2]):
        return None
    return int(old[2]), int(new[2])


def goes_on_in_order(steps: Sequence[str]) -> bool:
    """Whether the earlier records come first, in the same order, whatever the length.

    >>> goes_on_in_order(["map", "batch(4, drop_remainder=True)", "to_iter_dataset()"])
    True
    >>> goes_on_in_order(["shuffle(seed=1)", "to_iter_dataset()"])
    False
    """
    is_stream = False
    for step in steps:
        name, _, arguments = step.partition("(")
        if name == "batch":
            # By position, a short last batch becomes longer with the new records.
            if not is_stream and "drop_remainder=True" not in arguments:
                return False
        elif name not in _IN_ORDER:
            return False
        is_stream = is_stream or name == "to_iter_dataset"
    return True


def how_to_go_on(had: int, has: int) -> str:
    """What to write if the order of the remaining elements depends on the length."""
    return (
        f" The source had {had} records and has {has} now, and the order of what is left depends "
        "on that. To go on with the old records, in the old order, write "
        f"`MapDataset.source(bushel.checkpoint.pinned(source, {had}))`."
    )
