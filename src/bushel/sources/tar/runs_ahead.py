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
from bushel.sources.chunks import CHUNK, Bytes, in_chunks
from bushel.sources.tar.members import Window
from bushel.sources.tar.plain_members import PlainMembers, PlainRuns, plain_members

# A member that is in no run costs as much as so many save that are. We begin with some trust.
_WRONG, _TRUST = 64, 1 << 12


class RunsAhead:
    """Runs of plain members, where members are small and hardly any of them are special.

    Meanwhile the window reads no more than it is asked for.
    """

    def __init__(self, file: LocalFile, window: Window, begin: int) -> None:
        """Until `begin` nobody knows how small members are."""
        self._file, self._window, self._begin = file, window, begin
        self._parts: Iterator[tuple[int, PlainRuns]] | None = None
        self._runs, self._end = PlainRuns([]), 0
        self._trust = _TRUST
        self._over = False

    def from_place(self, place: int) -> PlainMembers | None:
        """The rest of a run, from the member on that begins there; None where there is none."""
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
        """Goes on to the part in which a place is; False if this is the end of it."""
        if self._window.is_large(place):
            return False  # Then only headers are read.
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
