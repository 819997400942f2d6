"""The stream of a user's own `IterDataset` or iterator."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bushel.core.block import Block, Failure, failure_of
from bushel.core.state import State, copy_state
from bushel.core.state_fields import Declares, Fields, Opaque, Path, Whole
from bushel.core.stream import Chunk, ComputedMarks, FixedMarks, Marks, Stream
from bushel.errors import StateError

# Elements of one chunk: far more than anybody asks of an iterator at once, and few enough to be
# made again.
_MOST_SKIPPED = 1 << 24


def _is_grains(state: Any) -> bool:
    """Whether a state is what an iterator of the user's returned, as it is in states of Grain."""
    return not isinstance(state, dict) or not state.keys() & {"iterator", "skip"}


class _CustomFields(Fields):
    """Those of `CustomStream`; a state of Grain's is for the user's iterator to check."""

    def below(self, state: Any, path: Path) -> Iterator[tuple[Declares, Any, Path]]:
        if not _is_grains(state):
            yield from super().below(state, path)


class CustomStream(Stream):
    """Pulls from an iterator of the user's, which need not know of blocks.

    The iterator is asked for as many elements as are needed and no more, and for its state
    once a chunk. Within a chunk the state is that of its start and the number of elements
    since, which are produced again after a restore.
    """

    eager = False

    def __init__(self, iterator: Iterator[Any], position: int = 0) -> None:
        self._iterator = iterator
        self._produced = position
        self._skip = 0
        self._marks: Marks | None = None

    def pull(self, want: int) -> Chunk | None:
        self._pass_over(self._skip)
        self._skip = 0
        start = self._marks or self._mark()
        rows: list[Any] = []
        failure: Failure | None = None
        try:
            for _ in range(want):
                rows.append(next(self._iterator))
        except StopIteration:
            pass
        except Exception as error:
            failure = failure_of(error)
        if not rows and failure is None:
            return None
        positions = np.arange(self._produced, self._produced + len(rows), dtype=np.int64)
        self._produced += len(rows)
        end, size = self._mark(), len(rows) + (failure is not None)
        self._marks = end

        def at(used: int) -> State:
            if used >= size:
                return end.at(0)
            state = start.at(0)
            return {**state, "skip": used} if used else state

        return Chunk(Block(rows, positions, failure), ComputedMarks(at))

    def _mark(self) -> Marks:
        get_state = getattr(self._iterator, "get_state", None)
        if get_state is None:
            return ComputedMarks(self._refuse)
        # A copy: the iterator may go on changing what it handed out.
        return FixedMarks({"iterator": copy_state(get_state()), "skip": 0})

    def _refuse(self, used: int) -> State:
        raise StateError(
            f"{type(self._iterator).__name__} has no `get_state`, so this pipeline has no state. "
            "Make `__iter__` return a subclass of `DatasetIterator`."
        )

    def _pass_over(self, count: int) -> None:
        for _ in range(count):
            try:
                next(self._iterator)
            except StopIteration:
                raise StateError(
                    f"this state is {count} elements after one of {type(self._iterator).__name__}, "
                    "which ends before: it belongs to other data."
                ) from None
            except Exception:
                continue  # It was raised where it belonged, before the state was taken.

    def state(self) -> State:
        if self._marks is None:
            self._marks = self._mark()
        state = self._marks.at(0)
        return {**state, "skip": self._skip} if self._skip else state

    def restore(self, state: State) -> None:
        inner, skip = (state, 0) if _is_grains(state) else (state["iterator"], state["skip"])
        set_state = getattr(self._iterator, "set_state", None)
        if set_state is None:
            self._refuse(0)
        else:
            set_state(copy_state(inner))
        self._skip, self._marks = skip, None

    def fields(self) -> Fields:
        return _CustomFields(iterator=Opaque(), skip=Whole(_MOST_SKIPPED))

    def start(self) -> None:
        start_prefetch = getattr(self._iterator, "start_prefetch", None)
        if start_prefetch is not None:
            start_prefetch()

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()
