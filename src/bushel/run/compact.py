"""`compact`: random access to the elements that filters keep, found in one pass.

The pass is made when an element or the length is first needed. It finds positions: four or eight
bytes for each element that is left.
"""

import logging
import os
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.checkpoint.signed import describe_pipeline
from bushel.core.fingerprint import fingerprints
from bushel.core.frozen import frozen
from bushel.core.node import (
    Choice,
    Drop,
    Each,
    Expand,
    Fold,
    Found,
    Guard,
    Node,
    Order,
    Place,
    walk,
)
from bushel.core.options import DatasetOptions, ReadOptions
from bushel.core.per_process import ProcessLock
from bushel.core.positions import Positions, before, grouped, join_epochs, run_of, split_epochs
from bushel.errors import BadRecordsError, FileError, PlanError
from bushel.files.paths import is_remote
from bushel.files.progress_line import ProgressLine
from bushel.order.concatenate import ConcatenateNode
from bushel.order.present import PresentNode, Wary
from bushel.order.repeat import INFINITE, RepeatNode
from bushel.order.slice import SliceNode
from bushel.order.zip import ZipNode
from bushel.run.compact_file import read_kept, write_kept
from bushel.run.positional import PositionalStream
from bushel.run.quota import DropQuota
from bushel.sources.memory import ColumnsNode, RangeNode
from bushel.sources.read_records import SequenceNode

_log = logging.getLogger("bushel")

# In addition to the first epoch, which tells how long epochs are.
_MOST_EPOCHS = 3
_AT_A_TIME = 1 << 15

_MISSING = (
    "`compact()` found an element here before, but now there is none: a filter, or a function "
    "before it, gives another result than in that pass. It must depend on the element alone. (If "
    "`cache=` names a file that was made from other data, remove it.)"
)


@frozen
class KeptNode(Wary):
    """Passes over the positions at which the input has no element."""

    input: Node
    kept: "KeptPositions"
    # Whether the input has its elements at the same places in every epoch.
    same_each_epoch: bool

    @property
    def knows_length(self) -> bool:  # type: ignore[override]
        return self.kept.has(0)

    def length(self) -> int:
        return len(self._places(0))

    def locate(self, positions: Positions) -> Positions:
        length = self.input.length()
        epochs, offsets = split_epochs(positions, self.length())
        if isinstance(epochs, int):
            places = self._places(epochs).take(offsets).astype(np.int64, copy=False)
            return join_epochs(places, epochs, length)
        places = np.empty(len(offsets), dtype=np.int64)
        for epoch in set(epochs.tolist()):
            here = (epochs == epoch).nonzero()[0]
            places[here] = self._places(epoch).take(offsets.take(here))
        return join_epochs(places, epochs, length)

    def find(self, positions: Positions, stop: int) -> Found:
        length = self.length()
        epochs, offsets = split_epochs(positions, self.input.length())
        epochs = np.broadcast_to(epochs, len(offsets))
        found = np.full(len(offsets), stop, dtype=epochs.dtype)
        for epoch, here in grouped(epochs):
            places = self._places(epoch)
            mine = offsets.take(here)
            at = places.searchsorted(mine)
            there = np.flatnonzero(places.take(at, mode="clip") == mine)
            found[here.take(there)] = epoch * length + at.take(there)
        return before(found, stop)

    def refused(self, positions: Positions) -> tuple[int, str] | None:
        if self.same_each_epoch:
            return None
        length = self.length()
        epochs = (positions // length).tolist()
        for epoch in dict.fromkeys(epochs):
            count = len(self.kept.of(self.input, epoch))
            if count != length:
                return epochs.index(epoch), (
                    f"`compact()` found {count} elements in epoch {epoch}, and {length} in the "
                    "first one: what is left out depends on random numbers or on the epoch, and "
                    "then elements have no fixed place. Put random steps after `compact()`."
                )
        return None

    def _places(self, epoch: int) -> npt.NDArray[Any]:
        places = self.kept.of(self.input, 0 if self.same_each_epoch else epoch)
        if not epoch or len(places) == self.length():
            return places
        return np.resize(places, self.length())  # These are refused later; any offset will do.

    def describe(self) -> str:
        return "compact()"


@frozen
class _EpochNode(Order):
    """One epoch of a dataset, in place of its first."""

    input: Node
    epoch: int

    def locate(self, positions: Positions) -> Positions:
        return join_epochs(positions, self.epoch, self.input.length())

    def locate_run(self, start: int, stop: int) -> tuple[int, int] | None:
        shift = self.epoch * self.input.length()
        return start + shift, stop + shift

    def describe(self) -> str:
        return ""


class KeptPositions:
    """The positions of the elements that are left, epoch by epoch; any thread may ask for them."""

    def __init__(self, cache: str | None, text: Any) -> None:
        """`text` describes the pipeline; a file with another text is ignored."""
        self._cache, self._text = cache, text
        self._epochs: OrderedDict[int, npt.NDArray[Any]] = OrderedDict()
        self._lock = ProcessLock()

    def has(self, epoch: int) -> bool:
        """Whether the positions of an epoch were found already."""
        return epoch in self._epochs

    def of(self, node: Node, epoch: int) -> npt.NDArray[Any]:
        """The offsets, within an epoch, of the elements that a node has."""
        known = self._epochs.get(epoch)
        if known is not None:
            return known
        with self._lock:
            known = self._epochs.get(epoch)
            return self._find(node, epoch) if known is None else known

    def _find(self, node: Node, epoch: int) -> npt.NDArray[Any]:
        length = node.length()
        cache = self._cache if not epoch else None
        of = {"length": length, "pipeline": self._text}
        found = None if cache is None else read_kept(cache, of, length)
        if found is None:
            found, whole = _pass_over(node, epoch)
            if cache is not None and whole:
                try:
                    write_kept(cache, of, found)
                except FileError as error:
                    _log.warning("compact: %s What was found is looked for again next time.", error)
        if length <= np.iinfo(np.uint32).max:
            found = found.astype(np.uint32)
        self._epochs[epoch] = found
        if len(self._epochs) > _MOST_EPOCHS + 1:
            del self._epochs[next(number for number in self._epochs if number)]
        return found


def _pass_over(node: Node, epoch: int) -> tuple[Positions, bool]:
    """The offsets of the elements that are left, and whether all elements could be made.

    A failed element counts as left: its error is raised when it is read, as everywhere.
    """
    quota = DropQuota("compact()", DatasetOptions())
    stream = PositionalStream(_EpochNode(node, epoch), ReadOptions(), True, quota)
    parts: list[Positions] = []
    start, whole = 0, True
    length = node.length()
    try:
        with ProgressLine(
            f"compact: looking for elements in epoch {epoch}", length, "elements"
        ) as bar:
            while (chunk := stream.pull(_AT_A_TIME)) is not None:
                block, failure = chunk.block, chunk.block.failure
                places = run_of(start, start + len(block))
                if isinstance(block.values, list):
                    places = places[[row is not None for row in block.values]]
                parts.append(places)
                start += len(block)
                if failure is not None:
                    if isinstance(failure.error, BadRecordsError):
                        raise failure.release()
                    parts.append(run_of(start, start + 1))
                    start, whole = start + 1, False
                bar.to(start)
    finally:
        stream.close()
    return np.concatenate([run_of(0, 0), *parts]), whole


_SAME_SOURCES = (RangeNode, SequenceNode, ColumnsNode)
_SAME_ORDERS = (SliceNode, RepeatNode, KeptNode)
_BY_PARTS = (ConcatenateNode, ZipNode)


def compacted(node: Node, cache: str | os.PathLike[str] | None) -> Node:
    """A node without what filters drop, as `MapDataset.compact` explains."""
    if node.length() == INFINITE:
        raise PlanError(
            "`compact()` must look at every element, and this dataset is infinite. Call "
            "`compact()` before `repeat()`."
        )
    path = None if cache is None else os.fspath(cache)
    if path is not None and is_remote(path):
        raise PlanError(f"`compact`: `cache` must be a file on this machine, not {path!r}.")
    text = [] if path is None else [*describe_pipeline(node), *fingerprints(node)]
    kept = KeptNode(node, KeptPositions(path, text), is_same_each_epoch(node))
    return PresentNode(kept, _MISSING)


def is_same_each_epoch(node: Node) -> bool:
    """Whether every epoch of a dataset is known to be the same as its first."""
    return all(_is_same_step(step) for step in walk(node))


def _is_same_step(step: Node) -> bool:
    if isinstance(step, (Order, Choice)):
        return isinstance(step, (*_SAME_ORDERS, *_BY_PARTS))
    if isinstance(step, Each):
        return not step.uses_positions
    return isinstance(step, (*_SAME_SOURCES, *_BY_PARTS, Drop, Expand, Fold, Guard, Place))
