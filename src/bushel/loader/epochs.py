"""Successive epochs over a dataset or loader, for torch, Keras and Hugging Face."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from bushel.core.arguments import whole
from bushel.core.node import Node
from bushel.dataset import IterDataset, MapDataset
from bushel.errors import PlanError, SourceError, StateError
from bushel.lanes.merge import merge_states
from bushel.loader.chain import Chain
from bushel.loader.loader import DataLoader
from bushel.watch.element_counts import ENDLESS, Counts

# Stands for the end, in place of an element.
_OVER = object()


class Epochs:
    """Passes over data, one after the other, with a state at every element.

    A finite random-access dataset goes on with its next epoch in each pass, so that shuffles and
    random steps differ. A stream, or a DataLoader, is the same in each pass. With
    `steps_per_epoch` a pass has so many elements, and the next goes on where it ended; data that
    comes to its end begins again.

    >>> epochs = Epochs(MapDataset.range(4).shuffle(seed=1))
    >>> list(epochs), list(epochs)
    ([1, 2, 3, 0], [0, 3, 1, 2])
    >>> epochs = Epochs(MapDataset.range(5).to_iter_dataset(), steps_per_epoch=3)
    >>> list(epochs), list(epochs)
    ([0, 1, 2], [3, 4, 0])
    """

    def __init__(
        self,
        data: Any,
        steps_per_epoch: int | None = None,
        opening: Callable[[], AbstractContextManager[None]] = nullcontext,
        make_iterator: Callable[[Any], Any] = iter,
    ) -> None:
        self._opening = opening  # Around the creation of each iterator.
        self._make_iterator = make_iterator
        if not isinstance(data, (MapDataset, IterDataset, DataLoader)):
            hint = ""
            if hasattr(data, "__next__"):
                hint = " An iterator has one pass; give what it was made of."
            elif hasattr(data, "__getitem__"):
                hint = " Write `MapDataset.source(...)` around it."
            raise TypeError(
                "passes are made over a MapDataset, an IterDataset or a DataLoader of bushel's, "
                f"and this is {type(data).__module__}.{type(data).__name__}.{hint}"
            )
        if steps_per_epoch is not None and whole(steps_per_epoch, "steps_per_epoch") <= 0:
            raise PlanError(f"steps_per_epoch must be positive, and is {steps_per_epoch}.")
        self._steps = None if steps_per_epoch is None else whole(steps_per_epoch, "steps_per_epoch")
        self._given = data
        self.data: Any = data
        self._by_epoch = False
        if isinstance(data, MapDataset) and 0 < len(data) < ENDLESS:
            self._by_epoch = self._steps is None
            self.data = data if self._by_epoch else data.repeat()
        count = Counts().of(self.node)
        self._count = None if count.endless else count.number
        # The place of the next element, and whether the next pass continues there.
        self._epoch = self._step = 0
        self._goes_on = True
        self._iterator: Any = None
        # The iterator that was last asked for an element, which may be closed.
        self.used: Any = None
        # The number of the newest iterator, which moves the position; and of one that is over.
        self._newest, self._over = 0, -1

    def again(self) -> "Epochs":
        """Begins passes over the same data anew."""
        return Epochs(self._given, self._steps, self._opening, self._make_iterator)

    @property
    def node(self) -> Node:
        """The steps of a pass."""
        if isinstance(self.data, DataLoader):
            return Chain(self.data._recipe).node()
        node: Node = self.data._stream_node()
        return node

    @property
    def epoch(self) -> int:
        """The number of the current pass, or of the next one."""
        return self._epoch

    @property
    def step(self) -> int:
        """The number of its elements so far."""
        return self._step

    @property
    def length(self) -> int | None:
        """The number of elements in a pass, if that is known without reading."""
        return self._count if self._steps is None else self._steps

    def __iter__(self) -> Iterator[Any]:
        """Begins the next pass; or continues one, after `set_state`.

        A pass that was left before its end is over; a pass of which nothing was taken has not
        begun.
        """
        self._leave()
        self._newest += 1
        return _Pass(self, self._newest)

    def _leave(self) -> None:
        """Ends a pass that was left before its end."""
        if self._step and not self._goes_on:
            over = self._over
            self.finish()
            self._over = over  # Its iterator does not know that another pass began.

    def take_for(self, number: int) -> Any:
        """Returns the next element for an iterator; `_OVER` at the end of its pass."""
        if number == self._over:
            return _OVER
        if number != self._newest:
            raise PlanError(
                "another pass has begun since this iterator was made, or a state was loaded: "
                "passes over one loader share the loader's position in the data, which the newest "
                "of them moves. For two at the same time make two loaders."
            )
        return self.take()

    def go_to(self, epoch: int) -> None:
        """Sets the number of the next pass, unless a state within that pass was restored.

        With `steps_per_epoch`, passes follow each other, whatever their numbers.
        """
        self._leave()
        if epoch != self._epoch and self._steps is None:
            self.close()
            self._epoch, self._step, self._newest = epoch, 0, self._newest + 1

    def take(self) -> Any:
        """Returns the next element of the current pass; `_OVER` at its end."""
        self._goes_on = False
        if self._step == self._steps:
            self.finish()
            return _OVER
        element = self._next()
        if element is _OVER and self._steps is not None:
            # The pass is longer than the rest of the data.
            self.close()
            element = self._next()
            if element is _OVER:
                raise SourceError(
                    f"there are no elements, and a pass is to have {self._steps} (steps_per_epoch)."
                )
        if element is _OVER:
            self.finish()
        else:
            self._step += 1
        return element

    def _next(self) -> Any:
        self.used = iterator = self._running()
        return next(iterator, _OVER)

    def _running(self) -> Any:
        if self._iterator is None:
            self._iterator = self._opened()
        return self._iterator

    def finish(self) -> None:
        """Ends the current pass: the next element begins another."""
        self._epoch, self._step = self._epoch + 1, 0
        self._over = self._newest
        if self._steps is None:
            self.close()

    def _opened(self) -> Any:
        data = self.data
        if self._by_epoch and self._epoch:
            length = len(data)
            data = data.repeat()[self._epoch * length : (self._epoch + 1) * length]
        with self._opening():
            return self._make_iterator(data)

    def get_state(self) -> dict[str, Any]:
        """The position, as a dict of plain values: of the element after the last.

        `bushel.checkpoint.merge_states` merges the states of all hosts that own lanes.
        """
        stream = self._running().state_dict()
        return {"epoch": self._epoch, "step": self._step, "stream": stream}

    def set_state(self, state: Any, strict: bool = False) -> None:
        """Restores a position; the next pass continues from there.

        A list counts as the states of all hosts.
        """
        if isinstance(state, (list, tuple)):
            state = merge_states(state)
        fields = {"epoch": int, "step": int, "stream": dict}
        if (
            not isinstance(state, dict)
            or any(type(state.get(name)) is not kind for name, kind in fields.items())
            or min(state["epoch"], state["step"]) < 0
        ):
            raise StateError(
                "this is no state of passes over a dataset, which has 'epoch', 'step' and "
                f"'stream': {state!r:.200}."
            )
        before = self._epoch, self._step
        self._epoch, self._step = state["epoch"], state["step"]
        try:
            opened = self._opened()
            opened.load_state_dict(state["stream"], strict)
        except BaseException:
            self._epoch, self._step = before
            raise
        self.close()
        self._iterator, self._goes_on, self._newest = opened, True, self._newest + 1

    def close(self) -> None:
        """Stops threads and worker processes; the next pass starts its own."""
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None


class _Pass:
    """The elements of one pass, until another one begins."""

    def __init__(self, epochs: Epochs, number: int) -> None:
        self._epochs, self._number = epochs, number
        self._is_over = False

    def __iter__(self) -> "_Pass":
        return self

    def __next__(self) -> Any:
        element = _OVER if self._is_over else self._epochs.take_for(self._number)
        if element is _OVER:
            self._is_over = True
            raise StopIteration
        return element
