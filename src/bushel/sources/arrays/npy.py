"""Where the array of an `.npy` file lies, and the members of an `.npz`.

    \\x93NUMPY  version (2 bytes)  length of the header (2 or 4)  header  values

The header is the text of a Python dict with `descr` (the type), `fortran_order` and `shape`.
"""

import ast
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

_MAGIC = b"\x93NUMPY"
# A header is text that is parsed, and no array needs more of it.
_MOST_HEADER = 1 << 16
# Axes that numpy allows an array.
_MOST_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
# What an archive ends with: 22 bytes, and a comment.
_MOST_END = 22 + (1 << 16)
# Errors by which `zipfile` reports damage. A `NotImplementedError`, which is a `RuntimeError`, is
# about a method of compression that it does not know.
_ZIP_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, RuntimeError,
    ValueError, KeyError, MemoryError,
)  # fmt: skip


class Layout(NamedTuple):
    """What lies in a stretch of bytes: an array of this type and shape, from `start` on."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    start: int

    def over(self, data: Bytes) -> npt.NDArray[Any]:
        """The array, where it lies."""
        order: Any = "F" if self.fortran_order else "C"
        return np.ndarray(self.shape, self.dtype, data.data, self.start, order=order)


def layout_of(data: Bytes, where: str, begin: int = 0, end: int | None = None) -> Layout:
    """Reads the header of an `.npy` that stands from byte `begin` up to `end`.

    `where` says in messages which one it is.
    """
    end = len(data) if end is None else end
    start = data[begin : min(begin + 12, end)].tobytes()
    if start[:6] != _MAGIC:
        raise FileError(
            f"{where} is no .npy file: it does not begin as one, but with {start[:6]!r}."
        )
    if len(start) < 12 or start[6] not in (1, 2, 3):
        raise (
            _cut_short(where, end - begin)
            if len(start) < 12
            else FileError(
                f"{where} is of version {start[6]} of the .npy format, which is not known here."
            )
        )
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    first = begin + 8 + width
    if length > _MOST_HEADER:
        raise FileError(f"{where} is damaged: its header is said to have {length:,} bytes.")
    if first + length > end:
        raise _cut_short(where, end - begin)
    text = data[first : first + length].tobytes()
    dtype, shape, fortran_order = _parsed(text, where, "utf-8" if start[6] == 3 else "latin-1")
    if dtype.hasobject:
        raise FileError(
            f"{where} holds Python objects, which are pickles, and unpickling a file can run "
            "any code. Load it with `numpy.load(..., allow_pickle=True)` if you trust it, and "
            "save arrays of numbers or of strings of a fixed width."
        )
    values = math.prod(shape) * dtype.itemsize
    if first + length + values > end:
        raise FileError(
            f"{where} is cut short: an array of shape {shape} and type {dtype} needs "
            f"{values:,} bytes, and there are {end - first - length:,}. Write or copy it anew."
        )
    return Layout(dtype, shape, fortran_order, first + length)


def _parsed(text: bytes, where: str, encoding: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        header = ast.literal_eval(text.decode(encoding).strip())
        shape, fortran_order = header["shape"], header["fortran_order"]
        dtype = np.lib.format.descr_to_dtype(header["descr"])
    except Exception as error:
        raise FileError(f"the header of {where} is damaged: {error}.") from None
    is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    too_many = is_shape and len(shape) > _MOST_AXES
    if not is_shape or too_many or type(fortran_order) is not bool or len(header) != 3:
        raise FileError(f"the header of {where} is damaged: it is {header!r:.200}.")
    return dtype, shape, fortran_order


def _cut_short(where: str, size: int) -> FileError:
    return FileError(
        f"{where} is cut short: it ends within its header, after {size:,} bytes. Write or copy "
        "it anew."
    )


class Member(NamedTuple):
    """An array of an `.npz`: where it lies in the file, or that it is compressed."""

    name: str
    # None where the member has to be decompressed first.
    layout: Layout | None
    # The byte of the file at which the member begins.
    start: int
    # How many bytes it is, decompressed.
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
    """Refuses an archive with fewer members than it says, which `zipfile` passes over."""
    end = data[-_MOST_END:].tobytes()
    at = end.rfind(b"PK\x05\x06")
    (said,) = struct.unpack_from("<H", end, at + 10) if 0 <= at <= len(end) - 22 else (found,)
    if said not in (found, 0xFFFF):  # That many is said elsewhere.
        raise FileError(
            f"{path!r} is damaged: it says that it has {said:,} members, and {found:,} are there. "
            "Write or copy it anew."
        )


def decompressed(data: Bytes, path: str, name: str) -> npt.NDArray[Any]:
    """Reads a member that is compressed, as a whole."""
    where, archive = member_name(path, name), _archive(data, path)
    try:
        content = np.frombuffer(archive.read(f"{name}.npy"), dtype=np.uint8)
    except _ZIP_ERRORS as error:
        raise FileError(f"{where} cannot be decompressed: {error}.") from None
    return layout_of(content, where).over(content)


def member_name(path: str, name: str) -> str:
    """How messages call a member."""
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
    """The byte at which the content of a member begins, after a header of its own."""
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
    """Bytes in memory, as `zipfile` wants them: nothing is copied but what it reads."""

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
