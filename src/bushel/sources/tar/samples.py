"""Groups the members of a tar file into samples."""

from array import array

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys
from bushel.errors import RecordError
from bushel.sources.tar.members import Member
from bushel.sources.tar.names import split_name
from bushel.sources.tar.plain_members import Names, PlainMembers

# With fewer members, or more of them in a sample, they are processed one by one.
_WORTH_IT = 32
_MOST_IN_A_SAMPLE = 16
_DOT, _SLASH = b"./"
_UPPER_A, _UPPER_Z = b"AZ"
_TO_SMALL = np.uint8(ord("a") - ord("A"))
_LAST_ASCII = 127


class Samples:
    """Finds where samples begin, member by member."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._bounds = array("q")
        self._last = 0
        self._key = ""
        self._endings = set[str]()

    def add(self, member: Member) -> None:
        """Adds one member."""
        begin, _, stop, name = member
        parts = split_name(name)
        if parts is None:
            return
        key, ending = parts
        if key != self._key or not self._endings:
            self._key = key
            self._endings.clear()
            self._bounds.append(begin)
        if ending in self._endings:
            raise two_files(self._path, len(self._bounds) - 1, name, begin)
        self._endings.add(ending)
        self._last = stop

    def add_many(self, members: PlainMembers) -> None:
        """Adds many members, by numpy if their names are plain as well."""
        count = len(members.begins)
        begun = _begun(members.names) if count > _WORTH_IT else None
        if begun is None:
            self._add_each(members)
            return
        # The first sample may have begun before, and the last one may continue.
        self._add_each(members.part(0, int(begun[0])))
        self._bounds.frombytes(members.begins[begun[:-1]].tobytes())
        self._endings.clear()
        self._add_each(members.part(int(begun[-1]), count))

    def _add_each(self, members: PlainMembers) -> None:
        for member in members.each():
            self.add(member)

    def bounds(self) -> Keys:
        """The beginnings of samples, and the end of the last one."""
        return np.append(np.frombuffer(self._bounds, np.int64), self._last)


def _begun(names: Names) -> npt.NDArray[np.intp] | None:
    """Which members begin samples, except the first; None if they must be processed one by one.

    That is the case if files have no ending, letters are not ASCII, or a sample has many files or
    two of one name.

    >>> names = [b"a.x", b"a.y", b"b.x", b"b.y", b"c.x"]
    >>> _begun(np.array([list(name) for name in names], np.uint8))
    array([2, 4])
    """
    dots = names == _DOT
    slashes = names == _SLASH
    # The name of a file begins after a slash, that of a sample ends before a dot.
    key = np.zeros(len(names), np.intp)
    if slashes.any():
        places = np.arange(1, names.shape[1] + 1, dtype=np.uint8)
        key = (slashes * places).max(1).astype(np.intp)
        dots &= places > key[:, None]
    ends = dots.argmax(1)
    if not (ends > key).all() or names.max() > _LAST_ASCII:
        return None
    differ = names[1:] != names[:-1]
    where = differ.argmax(1)
    differs = np.take_along_axis(differ, where[:, None], 1)[:, 0]
    same = (ends[1:] == ends[:-1]) & (~differs | (where >= ends[1:]))
    begun = np.flatnonzero(~same) + 1
    if len(begun) < 2:
        return None
    most = int(np.diff(begun).max())
    return None if most > _MOST_IN_A_SAMPLE or _has_two_files(names, same, most) else begun


def _has_two_files(names: Names, same: npt.NDArray[np.bool_], most: int) -> bool:
    """Whether two files of a sample have the same name; endings are compared in lower case."""
    # The part before the ending is the same in a sample, so changing it does not matter.
    small = names | ((names >= _UPPER_A) & (names <= _UPPER_Z)) * _TO_SMALL
    numbers = np.concatenate([[0], np.cumsum(~same)])
    for apart in range(1, most):
        pairs = np.flatnonzero(numbers[apart:] == numbers[:-apart])
        if (small.take(pairs, 0) == small.take(pairs + apart, 0)).all(1).any():
            return True
    return False


def two_files(path: str, sample: int, name: str, place: int) -> RecordError:
    """The error about a sample that has two files of one name."""
    return RecordError(
        f"sample {sample:,} of {path!r} has two files {name!r}, the second at byte {place:,}. "
        "Files of a sample need names of their own."
    )
