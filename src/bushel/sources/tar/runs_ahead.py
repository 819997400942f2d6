"""Finds plain members of a tar file on all cores, ahead of the reader.

Headers are at multiples of a block, so a part of a file can be searched without knowing what comes
before it. The runs of members that are found there are used if one begins exactly where the
reader has arrived. Members between two parts, and special ones, are read one by one.
"""

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.files.local import LocalFile
from bushel.sources.parallel_search import CHUNK, Bytes, in_chunks
from bushel.sources.tar.members import Window
from bushel.sources.tar.plain_members import PlainMembers, PlainRuns, plain_members

# A member that is in no run costs as much as `_WRONG` members in runs save. The search ahead ends
# when the misses have used up the savings and the first `_TRUST`.
_WRONG, _TRUST = 64, 1 << 12


class RunsAhead:
    """Runs of plain members, found ahead while members are small and nearly all are plain.

    While it is searching, the window of the reader does not read ahead itself.
    """

    def __init__(self, file: LocalFile, window: Window, begin: int) -> None:
        """Begins at the place `begin`: the members before it show how small members are."""
        self._file, self._window, self._begin = file, window, begin
        self._parts: Iterator[tuple[int, PlainRuns]] | None = None
        self._runs, self._end = PlainRuns([]), 0
        self._trust = _TRUST
        self._over = False

    def from_place(self, place: int) -> PlainMembers | None:
        """The rest of the run that has a member at this place; None if no run has one."""
        if self._over or place < self._begin:
            return None
        if place >= self._end and not self._move(place):
            self.end()
            return None
        run = self._runs.from_place(place)
        self._trust += -_WRONG if run is None else len(run.begins)
        if self._trust < 0:
            self.end()
        return run

    def _move(self, place: int) -> bool:
        """Moves to the part of the file that has this place; False if the search ends here."""
        if self._window.is_large(place):
            return False  # Of large members only the headers are read.
        if self._parts is None:
            self._parts = _parts(self._file, place)
            self._window.narrow = True
        while place >= self._end:
            part = next(self._parts, None)
            if part is None:
                return False
            self._end, self._runs = part
        return True

    def end(self) -> None:
        """Leaves the rest to the window."""
        self._over, self._window.narrow = True, False
        if isinstance(self._parts, Generator):
            self._parts.close()


def _parts(file: LocalFile, start: int) -> Iterator[tuple[int, PlainRuns]]:
    def search(place: int, data: Bytes, spare: npt.NDArray[np.bool_]) -> Any:
        return plain_members(data.data, place)

    return in_chunks(file, start, CHUNK, search)
