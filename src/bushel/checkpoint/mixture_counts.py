"""`mix_counts` of a state: the elements that each part of a mixture has given."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bushel.core.state import State, by_name, children
from bushel.errors import StateError


@dataclass(frozen=True, slots=True)
class PartCounts:
    """The number of elements that one part of a mixture has given.

    Failed elements do not count. `epoch` and `in_epoch` differ from 0 and `elements` if the part
    began again (`on_end="restart"`).
    """

    elements: int
    # Share of all elements of this mixture, from 0 to 1; 0 before the first.
    share: float
    epoch: int
    in_epoch: int
    # Whether the part has ended, and the mixture continues without it (`on_end="drop"`).
    has_left: bool = False


def mix_counts(state: Any) -> dict[str, PartCounts]:
    """Counts the elements that each part of the mixtures in a pipeline has given.

    Parts are called by their names, or by their numbers where they have none. Those of a
    mixture within another stand after the part that it is: "web/de". Lanes are counted
    together.

    What was read ahead by threads or workers does not count. What came out of the mixture for
    a window that is shuffled counts when the window is complete. After `pack`, what is in the rows
    that were handed out counts, if an iterator is given: the rows of a packer are made together,
    and the group is made again to see what is in each. (In a state, in lanes, and where there
    are several packers, a group counts when all of its rows were handed out.)

    >>> import bushel
    >>> web, books = bushel.MapDataset.range(100), bushel.MapDataset.range(100)
    >>> iterator = iter(bushel.IterDataset.mix({"web": web, "books": books}, [1, 3]))
    >>> _ = [next(iterator) for _ in range(8)]
    >>> mix_counts(iterator)["web"]
    PartCounts(elements=6, share=0.75, epoch=0, in_epoch=6, has_left=False)

    Args:
      state: a state of a dataset's iterator, or the iterator, for where it is now.
    """
    if hasattr(state, "_state_to_count"):
        state = state._state_to_count()
    elif hasattr(state, "get_state"):
        state = state.get_state()
    if not isinstance(state, dict):
        raise StateError(
            f"`mix_counts` takes an iterator or a state that `get_state()` returned, and got a "
            f"{type(state).__name__}: {state!r:.200}."
        )
    counts: dict[str, _SavedPart] = {}
    for path, part in _parts(state, ""):
        known = counts.setdefault(path, _SavedPart(0, 0, 0, 0, 0))
        counts[path] = known.add(part)
    return {path: part.counts() for path, part in counts.items()}


@dataclass(frozen=True, slots=True)
class _SavedPart:
    """A part in a state; lanes have one each, which are added up."""

    elements: int
    of: int
    epoch: int
    in_epoch: int
    left: int
    lanes: int = 0

    def add(self, other: "_SavedPart") -> "_SavedPart":
        # The epoch that all lanes have finished; some lanes may be in a later one.
        epoch = min(self.epoch, other.epoch) if self.lanes else other.epoch
        return _SavedPart(
            self.elements + other.elements,
            self.of + other.of,
            epoch,
            self.in_epoch + other.in_epoch,
            self.left + other.left,
            self.lanes + 1,
        )

    def counts(self) -> PartCounts:
        share = self.elements / self.of if self.of else 0.0
        return PartCounts(
            self.elements, share, self.epoch, self.in_epoch, self.left == self.lanes > 0
        )


def _parts(state: Any, path: str) -> Iterator[tuple[str, _SavedPart]]:
    """The parts of all mixtures in a state, outer mixtures first."""
    if isinstance(state, dict) and "taken" in state:
        for name, value in state.items():
            if name in ("parents", "iterators_in_use_states"):
                named = {_called(state, name, key): part for key, part in by_name(value).items()}
                yield from _mixture(state, named, path)
    for place, child in children(state):
        yield from _parts(child, path + _below(state, place))


def _below(state: State, place: tuple[str, ...]) -> str:
    """The prefix for the names of parts below a stream."""
    field, *key = place
    if key and field != "lanes":
        return f"{_called(state, field, key[0])}/"
    return f"{state['part']}/" if not key and "part" in state else ""  # A concatenation.


def _called(state: State, field: str, key: str) -> str:
    """The name or number of a stream; open streams have theirs in a list beside them."""
    numbers = state.get("iterators_in_use_indices", ())
    open_now = field == "iterators_in_use_states" and key.isdecimal() and int(key) < len(numbers)
    return str(numbers[int(key)]) if open_now else key


def _mixture(state: Any, parents: dict[str, Any], path: str) -> Iterator[tuple[str, _SavedPart]]:
    taken, left = by_name(state["taken"]), by_name(state.get("left", {}))
    total = sum(taken.values())
    for name, parent in parents.items():
        elements = taken.get(name, 0)
        epoch, in_epoch = 0, elements
        if isinstance(parent, dict) and "in_epoch" in parent:
            epoch, in_epoch = parent["epoch"], parent["in_epoch"]
        yield f"{path}{name}", _SavedPart(elements, total, epoch, in_epoch, left.get(name, 0))
