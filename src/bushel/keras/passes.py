"""The place of a Keras training in its data, however much Keras has prefetched."""

import threading
from collections.abc import Iterator
from typing import Any

from bushel.loader.epochs import Epochs

# So many elements Keras takes at the most to see what the data is like: one, and what it or
# TensorFlow reads ahead.
_LOOK = 3


class KerasPasses:
    """Passes over data for a reader who may look at it before, and reads ahead.

    Keras begins a pass to see what the data is like, and leaves it: the next begins at the same
    place. For those who save states, `watched`, the
    states after the latest elements are kept until they are trained on.
    """

    def __init__(self, epochs: Epochs, same_each_epoch: bool) -> None:
        self._epochs = epochs
        self._same_each_epoch = same_each_epoch
        self.watched = False
        # Where passes begin, once there was one; where the next begins when Keras has said that
        # this one is over; and which of them is where the data is now.
        self._start: dict[str, Any] | None = None
        self._after: dict[str, Any] | None = None
        self._now: dict[str, Any] | None = None
        # Of the pass: its number, how many elements it had, and the states after them.
        self._pass = self._taken = 0
        self._states: dict[int, dict[str, Any]] = {}
        # Where the last pass began, if it was so short that it may have been a look.
        self._before_look: dict[str, Any] | None = None
        # How many elements the pass has, if it goes on in the middle of an epoch.
        self.rest: int | None = None
        # TensorFlow takes elements in a thread of its own, perhaps for a pass that was left.
        self._lock = threading.RLock()

    def elements(self) -> Iterator[Any]:
        """Makes a pass; a pass that was under way is over."""
        with self._lock:
            self._pass += 1
            number, self._taken, self._after = self._pass, 0, None
            self._states.clear()
            if self._start is None:
                self._start = self._now = self._epochs.get_state()
            if self._now is not self._start:
                self._epochs.set_state(self._start)
            length, began = self._epochs.length, self._epochs.step
            self.rest = length - began if began and length is not None else None
            elements, self._now = iter(self._epochs), None
        while True:
            with self._lock:
                if self._pass != number:
                    return
                element = next(elements, self)
                if element is self:
                    if self._after is None:  # The pass told its length by its end.
                        self._end()
                    return
                self._taken += 1
                if self._epochs.step == self._epochs.length:
                    self._epochs.finish()
                    self._end()
                if self.watched:
                    self._states[self._taken] = self._after or self._epochs.get_state()
            yield element

    def _end(self) -> None:
        self._after = self._now = self._epochs.get_state()
        if self._same_each_epoch:
            self._after = self._start

    def epoch_ended(self) -> None:
        """Takes note that Keras is done with a pass, or has looked at the data."""
        with self._lock:
            if self._after is None and self._taken > _LOOK:
                # Keras takes as many from later passes as the first had, if it was not told.
                self._epochs.finish()
                self._end()
            if self._after is not None:
                self._before_look = self._start if self._taken <= _LOOK else None
                self._start, self._after = self._after, None
            self._taken = 0
            self._pass += 1

    def training_begins(self) -> None:
        """Goes back to before a pass that was a look, and came to the end all the same."""
        with self._lock:
            if self._before_look is not None:
                self._start, self._now, self._before_look = self._before_look, None, None

    def was_trained(self) -> None:
        """Takes note that the last pass was no look, however short."""
        self._before_look = None

    def state_after(self, trained: int) -> dict[str, Any]:
        """The state after so many elements of the pass that is under way."""
        with self._lock:
            for older in [count for count in self._states if count < trained]:
                del self._states[older]
            return self._states[trained]

    def state(self) -> dict[str, Any]:
        """The state between two passes."""
        with self._lock:
            return self._epochs.get_state() if self._start is None else self._start

    def restore(self, state: Any, strict: bool) -> None:
        """Has the next pass go on from a state."""
        with self._lock:
            self._epochs.set_state(state, strict)
            self._start = self._now = self._epochs.get_state()
            self._after, self._before_look, self._taken = None, None, 0
            self._pass += 1
