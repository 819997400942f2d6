"""Finds the members of a tar file by their headers, without unpacking it.

    header (512 bytes)  data, filled up to a multiple of 512  header  ...  zeros

Long names and large sizes have members of their own, before the member that they describe.
"""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias
from zlib import adler32

from bushel.errors import RecordError
from bushel.sources.tar.plain_members import BLOCK, PlainMembers, PlainRuns, plain_members

_ZEROS = bytes(BLOCK)
_NO_RUNS = PlainRuns([])
# In less, there are too few members for numpy to be faster.
_WORTH_IT = 1 << 16
_REGULAR = b"0\x007"
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _SPARSE = b"LKxgS"
# No name is longer; a header that says so is damaged.
_MOST_OF_NAMES = 1 << 20

# The bytes of a file from a place up to another.
Read = Callable[[int, int], bytes]
# The same, in memory that the next call may overwrite.
Lend = Callable[[int, int], bytes | memoryview]


# A regular file in a tar file: the place of its first header, the start and end of its data, and
# its name.
Member: TypeAlias = tuple[int, int, int, str]


class Window:
    """A part of a file, which moves forward on demand.

    Args: read: reads the file. size: its bytes. chunk: bytes of one read, if members are small.
    small: the greatest size of small members. lend: reads chunks, if other than `read`.
    """

    def __init__(
        self, read: Read, size: int, chunk: int, small: int, lend: Lend | None = None
    ) -> None:
        self.read, self.size, self._chunk, self._small = read, size, chunk, small
        self._lend: Lend = lend or read
        self._data: bytes | memoryview = b""
        self._begin = 0
        self._asked = 0
        # Whether another reader prefetches, so that only headers are needed here.
        self.narrow = False

    def is_large(self, place: int) -> bool:
        """Whether members up to a place are large, on average."""
        return place > (self._asked + 1) * self._small

    def move(self, place: int) -> bytes | memoryview:
        """Moves on to a header, if it is not in the window; returns the bytes from it on."""
        first = place - self._begin
        if first >= 0 and first + BLOCK <= len(self._data):
            return b""
        # Large members have few headers: then only these are read.
        few = self.narrow or self.is_large(place)
        self._begin = place
        if few:
            self._data = self.read(place, min(place + 8 * BLOCK, self.size))
        else:
            self._data = self._lend(place, min(place + self._chunk, self.size))
        return self._data

    def header(self, place: int) -> bytes:
        """The block at a place; fewer bytes at the end of the file."""
        first = place - self._begin
        return bytes(self._data[first : first + BLOCK])

    def count(self, members: int) -> None:
        self._asked += members


def members(window: Window, path: str, place: int = 0, checked: bool = True) -> Iterator[Member]:
    """Iterates over the members of a tar file, without links, folders and the like."""
    for found in stretches(window, path, place, checked):
        if isinstance(found, PlainMembers):
            yield from found.each()
        else:
            yield found


class KnownMembers(Protocol):
    """Plain members that were found earlier (`RunsAhead` is one)."""

    def from_place(self, place: int) -> PlainMembers | None:
        """Neighbouring members, the first of which begins at this place; None if none are known."""


def stretches(
    window: Window,
    path: str,
    place: int = 0,
    checked: bool = True,
    known: KnownMembers = _NO_RUNS,
) -> Iterator[PlainMembers | Member]:
    """The members of a tar file: plain ones many at once, others one by one."""
    begin, name, size = place, b"", -1
    runs = _NO_RUNS
    while place < window.size:
        plain = known.from_place(place) if begin == place and known is not _NO_RUNS else None
        data = window.move(place) if plain is None else b""
        if data:
            # Unchecked data is a sample found by the index, which has a few members.
            is_long = checked and len(data) > _WORTH_IT
            runs = plain_members(data, place) if is_long else _NO_RUNS
        if plain is None and begin == place and runs is not _NO_RUNS:
            plain = runs.from_place(place)
        if plain is not None:
            window.count(len(plain.begins))
            yield plain
            begin = place = _filled(int(plain.stops[-1]))
            continue
        window.count(1)
        header = window.header(place)
        if header == _ZEROS:
            break
        if len(header) < BLOCK:
            raise RecordError(
                f"{path!r} is cut short: it ends at byte {window.size:,}, within a header."
            )
        if checked and not _is_right(header):
            raise RecordError(
                f"{path!r} is no tar file, or damaged: the header of a member at byte {place:,} "
                "has a wrong checksum."
            )
        kind = header[156]
        length = _number(header[124:136], path, place) if size < 0 else size
        start = place + BLOCK
        place = _filled(start + length)
        if start + length > window.size:
            raise RecordError(
                f"{path!r} is cut short: the member whose header is at byte {start - BLOCK:,} has "
                f"{length:,} bytes, and the file ends at byte {window.size:,}."
            )
        if kind in _REGULAR:
            yield begin, start, start + length, _decoded(name or _name_in(header))
        elif kind in (_LONG_NAME, _PAX):
            if length > _MOST_OF_NAMES:
                raise RecordError(
                    f"{path!r} has a name of {length:,} bytes at byte {start:,}, and is damaged."
                )
            said = window.read(start, start + length)
            if kind == _LONG_NAME:
                name = said.rstrip(b"\0")
            else:
                name, size = _pax(said, name, path, start)
            continue  # It describes the next one.
        elif kind == _SPARSE:
            raise _sparse(path, start - BLOCK)
        elif kind == _LONG_LINK:
            continue
        begin, name, size = place, b"", -1


def members_of_sample(data: bytes, path: str) -> list[tuple[int, int, str]]:
    """The start and end of the data of each member in the bytes of a sample, and its name.

    The index has found them before, so nothing is checked again. Except for special members, each
    takes only a moment, as a batch has as many as the files of its samples.
    """
    found: list[tuple[int, int, str]] = []
    place, size = 0, len(data)
    while place + BLOCK <= size:
        name = data[place : place + 100].partition(b"\0")[0]
        is_plain = name and data[place + 156] in _REGULAR and not data[place + 345]
        if not is_plain or data[place + 135] not in b"\0 ":
            break
        start = place + BLOCK
        try:
            stop = start + int(data[place + 124 : place + 135], 8)
        except ValueError:
            break
        if not start <= stop <= size:
            break
        found.append((start, stop, name.decode("utf-8", "surrogateescape")))
        place = _filled(stop)
    if place >= size:
        return found
    window = Window(lambda start, stop: data[start:stop], size, size, size)
    return [member[1:] for member in members(window, path, checked=False)]


def _filled(place: int) -> int:
    return (place + BLOCK - 1) & -BLOCK


def _is_right(header: bytes) -> bool:
    try:
        stored = int(header[148:156].split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return False
    # It is the sum of all bytes, in which the field itself counts as spaces. Adler's checksum has
    # that sum in its lower half, plus one, modulo a prime; and is much faster than `sum`.
    added = adler32(header[:148] + b"        " + header[156:]) & 0xFFFF
    return added == (stored + 1) % 65521


def _number(field: bytes, path: str, place: int) -> int:
    """A number in octal digits; or in binary, if it is too large for those."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        number = int(field.split(b"\0")[0].strip() or b"0", 8)
        if number >= 0:
            return number
    except ValueError:
        pass
    raise RecordError(f"the header at byte {place:,} of {path!r} has no size, but {field!r}.")


def _name_in(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0" and header[345]:
        return header[345:500].split(b"\0", 1)[0] + b"/" + name
    return name


def _pax(said: bytes, name: bytes, path: str, place: int) -> tuple[bytes, int]:
    """The path and the size in an extended header: lines of "length key=value"."""
    size = -1
    while said:
        digits = said.partition(b" ")[0]
        if not digits.isdigit() or not len(digits) < int(digits) <= len(said):
            raise RecordError(f"the extended header at byte {place:,} of {path!r} is damaged.")
        key, _, value = said[len(digits) + 1 : int(digits) - 1].partition(b"=")
        said = said[int(digits) :]
        if key == b"path":
            name = value
        elif key == b"size" and value.isdigit():
            size = int(value)
        elif key.startswith(b"GNU.sparse"):
            raise _sparse(path, place)
    return name, size


def _sparse(path: str, place: int) -> RecordError:
    return RecordError(
        f"the member at byte {place:,} of {path!r} is stored with holes (sparse), which cannot be "
        "read here. Make the tar file anew without `--sparse`."
    )


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
