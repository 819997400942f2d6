"""Finds the array in an `.npy` file, and the members of an `.npz`.

    \\x93NUMPY  version (2 bytes)  length of the header (2 or 4)  header  values

The header is the text of a Python dict with `descr` (the type), `fortran_order` and `shape`.
"""

import io
import lzma
import math
import struct
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bushel.errors import FileError

Bytes = npt.NDArray[np.uint8]

# A header is text to parse, and no array needs a longer one.
_MOST_HEADER = 1 << 16
# The most axes that numpy allows.
_MOST_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
# The end of an archive: 22 bytes, and a comment.
_MOST_END = 22 + (1 << 16)
# Errors by which `zipfile` reports damage. A `NotImplementedError`, which is a `RuntimeError`, is
# about an unknown method of compression.
_ZIP_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, RuntimeError,
    ValueError, KeyError, MemoryError,
)  # fmt: skip


class Layout(NamedTuple):
    """An array in some bytes: type, shape and `start`."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    start: int

    def over(self, data: Bytes) -> npt.NDArray[Any]:
        """The array, without a copy."""
        order: Any = "F" if self.fortran_order else "C"
        return np.ndarray(self.shape, self.dtype, data.data, self.start, order=order)


def layout_of(data: Bytes, where: str, begin: int = 0, end: int | None = None) -> Layout:
    """Reads the header of an `.npy` from byte `begin` up to `end`.

    `where` names it in messages.
    """
    end = len(data) if end is None else end
    file = io.BytesIO(data[begin : min(begin + 12 + _MOST_HEADER, end)].tobytes())
    try:
        version = np.lib.format.read_magic(file)[0]
    except ValueError:
        raise FileError(
            f"{where} is no .npy file: it does not begin as one, but with {file.getvalue()[:6]!r}."
        ) from None
    if version not in (1, 2, 3):
        raise FileError(
            f"{where} is of version {version} of the .npy format, which is not known here."
        )
    length = int.from_bytes(file.getvalue()[8 : 10 if version == 1 else 12], "little")
    start = begin + (10 if version == 1 else 12) + length
    if length > _MOST_HEADER:
        raise FileError(f"{where} is damaged: the length of its header is given as {length:,}.")
    if start > end:
        raise FileError(
            f"{where} is cut short: it ends within its header, after {end - begin:,} bytes. Write "
            "or copy it anew."
        )
    dtype, shape, fortran_order = _header(file, version, where)
    if dtype.hasobject:
        raise FileError(
            f"{where} holds Python objects, which are pickles, and unpickling a file can run "
            "any code. Load it with `numpy.load(..., allow_pickle=True)` if you trust it, and "
            "save arrays of numbers or of strings of a fixed width."
        )
    values = math.prod(shape) * dtype.itemsize
    if start + values > end:
        raise FileError(
            f"{where} is cut short: an array of shape {shape} and type {dtype} needs "
            f"{values:,} bytes, and there are {end - start:,}. Write or copy it anew."
        )
    return Layout(dtype, shape, fortran_order, start)


def _header(
    file: io.BytesIO, version: int, where: str
) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        if version == 3:
            file = _as_version_2(file)
        read: Any = np.lib.format.read_array_header_2_0
        if version == 1:
            read = np.lib.format.read_array_header_1_0
        shape, fortran_order, dtype = read(file, max_header_size=8 * _MOST_HEADER)
    except Exception as error:
        raise FileError(f"the header of {where} is damaged: {error}.") from None
    if len(shape) > _MOST_AXES or any(type(length) is not int or length < 0 for length in shape):
        raise FileError(f"the header of {where} is damaged: it has the shape {shape!r:.200}.")
    return dtype, shape, fortran_order


def _as_version_2(file: io.BytesIO) -> io.BytesIO:
    """The header of version 3 as one of version 2, as numpy has no reader for the former.

    Version 3 is UTF-8, for the names of fields. The header is a Python literal, in which any
    character can be escaped.
    """
    length = int.from_bytes(file.read(4), "little")
    text = file.read(length).decode().encode("ascii", "backslashreplace")
    return io.BytesIO(len(text).to_bytes(4, "little") + text)


class Member(NamedTuple):
    """An array of an `.npz`: its place in the file, or that it is compressed."""

    name: str
    # None if the member has to be decompressed first.
    layout: Layout | None
    # The byte of the file at which the member begins.
    start: int
    # Its size in bytes, decompressed.
    size: int


def members_of(data: Bytes, path: str) -> list[Member]:
    """Finds the arrays of an `.npz`, in the order in which they were written."""
    members: list[Member] = []
    infos = _archive(data, path).infolist()
    _check_count(data, path, len(infos))
    for info in infos:
        name = info.filename.removesuffix(".npy")
        where = member_name(path, name)
        if name == info.filename:
            _start_of(data, info, where)  # Its name may be damaged, too.
            continue
        if any(member.name == name for member in members):
            raise FileError(f"{path!r} has two members of the name {name!r}.")
        if info.flag_bits & 1:
            raise FileError(f"{where} is encrypted, and cannot be read.")
        layout = None
        if info.compress_type == zipfile.ZIP_STORED:
            start = _start_of(data, info, where)
            layout = layout_of(data, where, start, start + info.file_size)
        members.append(Member(name, layout, info.header_offset, info.file_size))
    if not members:
        raise FileError(f"{path!r} has no arrays: no member of it ends in .npy.")
    return members


def _check_count(data: Bytes, path: str, found: int) -> None:
    """Refuses an archive with fewer members than it says, which `zipfile` accepts."""
    end = data[-_MOST_END:].tobytes()
    at = end.rfind(b"PK\x05\x06")
    (said,) = struct.unpack_from("<H", end, at + 10) if 0 <= at <= len(end) - 22 else (found,)
    if said not in (found, 0xFFFF):  # Such large counts are elsewhere.
        raise FileError(
            f"{path!r} is damaged: it says that it has {said:,} members, and {found:,} are there. "
            "Write or copy it anew."
        )


def decompressed(data: Bytes, path: str, name: str) -> npt.NDArray[Any]:
    """Decompresses a member as a whole."""
    where, archive = member_name(path, name), _archive(data, path)
    try:
        content = np.frombuffer(archive.read(f"{name}.npy"), dtype=np.uint8)
    except _ZIP_ERRORS as error:
        raise FileError(f"{where} cannot be decompressed: {error}.") from None
    return layout_of(content, where).over(content)


def member_name(path: str, name: str) -> str:
    """The name of a member in messages."""
    return f"the array {name!r} of {path!r}"


def _archive(data: Bytes, path: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(_Reading(data))
    except _ZIP_ERRORS as error:
        raise FileError(
            f"{path!r} is no .npz file, or not a whole one: {error}. If it once was one, it has "
            "been cut short or damaged; write or copy it anew."
        ) from None


def _start_of(data: Bytes, info: zipfile.ZipInfo, where: str) -> int:
    """The byte at which a member's content begins, after its own header."""
    at = info.header_offset
    header = data[at : at + _LOCAL_HEADER.size].tobytes()
    if len(header) == _LOCAL_HEADER.size:
        signature, *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        named = at + _LOCAL_HEADER.size
        start = int(named + name_length + extra_length)
        same_name = data[named : named + name_length].tobytes() == info.orig_filename.encode(
            "utf-8" if info.flag_bits & 0x800 else "cp437"
        )
        stored = info.compress_type == zipfile.ZIP_STORED
        same_size = info.file_size == info.compress_size or not stored
        fits = start + info.compress_size <= len(data)
        if signature == b"PK\x03\x04" and same_name and same_size and fits:
            return start
    raise FileError(
        f"{where} is damaged: byte {at:,} of the file, where it should begin, is not the "
        "beginning of it. Write or copy it anew."
    )


class _Reading:
    """Bytes in memory, as a file for `zipfile`: only what it reads is copied."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._at = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, len(self._data))[whence]
        if at < 0:
            raise OSError(f"byte {at} of a file")  # As files do; `zipfile` relies on it.
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        stop = len(self._data) if size is None or size < 0 else self._at + size
        data = self._data[self._at : stop].tobytes()
        self._at += len(data)
        return data

    def close(self) -> None:
        pass
