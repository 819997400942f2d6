"""The warning, or error, where a filter drops nearly everything: counts in windows of 1,000."""

import logging

import numpy as np
import numpy.typing as npt

from bushel.core.options import DatasetOptions
from bushel.errors import FilterError

_WINDOW = 1000
_log = logging.getLogger("bushel")


class DropQuota:
    """Counts what a step drops, in windows of 1,000 elements."""

    def __init__(self, label: str, options: DatasetOptions) -> None:
        self._label = label
        self._warn = options.filter_warn_threshold_ratio
        self._raise = options.filter_raise_threshold_ratio
        self._seen = 0
        self._dropped = 0
        self._warned = False

    @property
    def counts(self) -> tuple[int, int]:
        """The number of elements seen in the window, and the number dropped."""
        return self._seen, self._dropped

    @counts.setter
    def counts(self, counts: tuple[int, int]) -> None:
        self._seen, self._dropped = counts

    @property
    def room(self) -> int:
        """The number of elements before the window is checked."""
        return _WINDOW - self._seen

    def reset(self) -> None:
        """Resets the counts, as elements may come again after a restore."""
        self._seen = self._dropped = 0

    def count_kept(self, count: int) -> "tuple[int, FilterError] | None":
        """Takes note of a block of which nothing was dropped."""
        if self._dropped:
            return self.count(np.ones(count, dtype=bool))
        self._seen = (self._seen + count) % _WINDOW
        return None

    def count(self, keep: npt.NDArray[np.bool_]) -> tuple[int, FilterError] | None:
        """Takes note of a block; returns the place and the error, if there is one to raise."""
        if self._warn is None and self._raise is None:
            return None
        start = 0
        while start < len(keep):
            stop = min(len(keep), start + _WINDOW - self._seen)
            part = keep[start:stop]
            self._seen += len(part)
            self._dropped += len(part) - int(np.count_nonzero(part))
            start = stop
            if self._seen == _WINDOW:
                ratio = self._dropped / _WINDOW
                self._seen = self._dropped = 0
                if self._raise is not None and ratio and ratio >= self._raise:
                    return stop, FilterError(self._text(ratio, "filter_raise_threshold_ratio"))
                if self._warn is not None and ratio and ratio >= self._warn and not self._warned:
                    self._warned = True
                    _log.warning(self._text(ratio, "filter_warn_threshold_ratio"))
        return None

    def _text(self, ratio: float, option: str) -> str:
        return (
            f"`{self._label}` dropped {ratio:.2%} of the last {_WINDOW} elements. Check the "
            "condition; if it is right, filter the data beforehand, which costs less. To switch "
            f"this check off, set `DatasetOptions({option}=None)` with `WithOptionsIterDataset`."
        )
