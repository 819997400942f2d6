"""Streams that are computed once and read again from memory or from disk."""

from __future__ import annotations

import operator
import os
from typing import Any, Generic, TypeVar

from bushel.errors import PlanError
from bushel.fluent.chain import Chain
from bushel.plan.passes import CacheNode

T = TypeVar("T")


class StreamCaching(Chain, Generic[T]):
    """A method that remembers the elements of a stream."""

    def cache(
        self, path: str | os.PathLike[str] | None = None, *, max_bytes: int | None = None
    ) -> Any:
        """Remembers the elements of the stream, so that the next epoch computes nothing.

        >>> from bushel import MapDataset
        >>> from bushel.experimental import RepeatIterDataset
        >>> computed = []
        >>> ds = MapDataset.range(3).to_iter_dataset().map(lambda x: computed.append(x) or x)
        >>> list(RepeatIterDataset(ds.cache(), 2)), computed
        ([0, 1, 2, 0, 1, 2], [0, 1, 2])

        Without a path, each iterator remembers in memory what it has given out. With one, the
        first iterator that goes through the whole stream leaves a file there, and every later
        epoch, iterator, process and run reads it. The file holds arrays, numbers, strings, bytes
        and dicts, lists and tuples of those, without pickles, and no other elements. It appears
        when it is complete, never before. It belongs to the steps before `cache`, as they are
        written, the code of their functions included; another pipeline refuses it. (What those
        functions call, and what files contain, is not compared: remove the file when that
        changes.)

        States are those of the stream without a file, and are good with or without one.

        Args:
          path: the file; its folder must exist.
          max_bytes: how much to remember at most. In memory, what comes behind is computed each
            time; on disk, a stream that is larger is not kept at all, with a warning.
        """
        if max_bytes is not None and operator.index(max_bytes) <= 0:
            raise PlanError(f"`cache`: max_bytes must be positive, and is {max_bytes}.")
        place = None if path is None else os.path.abspath(os.fspath(path))
        if place is not None and not os.path.isdir(os.path.dirname(place)):
            raise PlanError(
                f"`cache`: there is no folder {os.path.dirname(place)!r} to keep a file in. Make "
                "it before, so that a misspelt path is noticed."
            )
        if place is not None and os.path.isdir(place):
            raise PlanError(
                f"`cache`: {place!r} is a folder. Write the name of a file in it, one for each "
                "pipeline."
            )
        return self._then(CacheNode(self._own_node(), place, max_bytes))
