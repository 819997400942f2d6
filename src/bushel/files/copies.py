"""Copies and unpacked versions of files, made once, verified, and kept in the cache folder.

They are for files that cannot be read in place: remote files that a library needs as local files,
and compressed ones. There is one copy for each file, named after the file and its stamp. It appears
once it is complete, and one process makes it while the others wait.

Beside it is a file with the checksums of its bytes, and its state when they were last verified.
They are verified again if the copy was written to since, and after each restart of the machine:
libraries read a copy directly, so a damaged piece would not be noticed.
"""

import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from bushel.core.limits import refusal
from bushel.core.machine import boot_id
from bushel.errors import FileError
from bushel.files.evict import FolderLimit
from bushel.files.local import ByteFile, stamp_of
from bushel.files.numbers import read_numbers, write_numbers
from bushel.files.paths import is_remote, without_query
from bushel.files.private import cache_bytes, kept_folder, make_private, open_ours, warn_once
from bushel.files.progress_line import ProgressLine
from bushel.files.whole import alone, written_whole

if TYPE_CHECKING:
    from bushel.files.remote import RemoteFile

_log = logging.getLogger("bushel")

_CHUNK = 1 << 25
_LOCK, _CHECKS = ".lock", ".checks"
# The bytes that have one checksum.
_PIECE = 1 << 20
# A program may open its files again as long as it runs, so they must still exist.
_IN_USE_SECONDS = 7 * 24 * 3600.0


def made_once(
    file: ByteFile, folder: str, name: str, why: str, pieces: Callable[[], Iterable[bytes]]
) -> str:
    """The path of the copy of a file: the existing one, or a new one.

    Args: file: the original. folder: the folder for such copies, in the cache folder. name: the
    copy's name, after its stamp, which some messages show. why: completes "the file ..., so ...".
    pieces: its contents, if it has to be made.
    """

    import hashlib  # The import loads a library of cryptography.

    path = file.path if is_remote(file.path) else os.path.abspath(file.path)
    # A folder in which no other user can put files.
    own = kept_folder(folder)
    of_file = os.path.join(own, hashlib.sha256(os.fsencode(path)).hexdigest())
    # The number is the version of the file beside a copy; a copy without one is made again.
    stamp = hashlib.sha256(f"2\n{file.stamp}".encode()).hexdigest()[:16]
    target = os.path.join(of_file, f"{stamp}-{name}")
    try:
        make_private(own)
        make_private(of_file)
        if _is_known(target):
            return target
        with alone(os.path.join(of_file, _LOCK)):
            # Another process may have made it meanwhile.
            if not _is_known(target) and not _is_right(target, file.path):
                _log.warning(
                    "%r %s to %r, which takes time and disk space; the copy is kept until it was "
                    "unused for a week and other files need the space (BUSHEL_CACHE_BYTES).",
                    file.path,
                    why,
                    target,
                )
                FolderLimit(own, cache_bytes(), in_use_seconds=_IN_USE_SECONDS).reserve(file.size)
                make_private(of_file)
                _make(target, pieces())
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            f"{file.path!r} {why} to {of_file!r}, and that fails: {refusal(error, of_file)}. "
            "Do it yourself, or name another folder in the environment variable BUSHEL_CACHE."
        ) from error
    return target


def _make(target: str, pieces: Iterable[bytes]) -> None:
    folder = os.path.dirname(target)
    # Copies of earlier versions of the file, and temporary files of killed processes. A process
    # that has one open can still read it.
    for other in os.listdir(folder):
        if other != _LOCK:
            with suppress(OSError):
                os.unlink(os.path.join(folder, other))
    checks = _Checks()
    with written_whole(target, 0o600) as out:
        for piece in pieces:
            out.write(piece)
            checks.add(piece)
    _note(target, checks.all())


class _Checks:
    """The checksums of bytes that arrive in parts of any size."""

    def __init__(self) -> None:
        self._found: list[int] = []
        self._check = self._length = 0

    def add(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            some = view[: _PIECE - self._length]
            self._check = zlib.crc32(some, self._check)
            self._length += len(some)
            view = view[len(some) :]
            if self._length == _PIECE:
                self._end()

    def _end(self) -> None:
        self._found.append(self._check)
        self._check = self._length = 0

    def all(self) -> list[int]:
        if self._length:
            self._end()
        return self._found


def _note(target: str, checks: list[int]) -> None:
    """Stores the checksums of a copy, and that they were verified now."""
    descriptor = open_ours(target, os.O_RDONLY)
    try:
        footer = {"of": os.path.basename(target), "now": _now(descriptor)}
    finally:
        os.close(descriptor)
    with written_whole(os.path.join(os.path.dirname(target), _CHECKS), 0o600, False) as out:
        write_numbers(out.write, footer, {"checks": np.array(checks, dtype=np.int64)})


def _now(descriptor: int) -> str:
    """A text that changes when a file is written to, or the machine is restarted."""
    status = os.fstat(descriptor)
    return f"{boot_id()} {status.st_ino} {stamp_of(status)} {status.st_ctime_ns}"


def _noted(target: str) -> tuple[str, list[int]] | None:
    """The stored checksums of a copy; None if there are none that can be trusted."""
    path = os.path.join(os.path.dirname(target), _CHECKS)
    try:
        descriptor = open_ours(path, os.O_RDONLY)
        try:
            with suppress(OSError):  # The disk may be read-only.
                os.utime(descriptor)  # The time of use, by which unused files are removed.
            footer, columns = read_numbers(descriptor, ("checks",), lambda name, error: None)
        finally:
            os.close(descriptor)
        if set(footer) != {"of", "now"} or footer["of"] != os.path.basename(target):
            return None
        return footer["now"], columns["checks"].tolist()
    except (OSError, ValueError):
        return None


def _is_known(target: str) -> bool:
    """Whether a copy exists, and was not written to since its bytes were verified."""
    try:
        descriptor = open_ours(target, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        noted = _noted(target)
        return noted is not None and noted[0] == _now(descriptor)
    finally:
        os.close(descriptor)


def _is_right(target: str, path: str) -> bool:
    """Whether a copy exists, and its bytes have the stored checksums."""
    noted = _noted(target)
    if noted is None:
        return False
    try:
        descriptor = open_ours(target, os.O_RDONLY)
    except FileNotFoundError:
        return False
    checks = _Checks()
    with open(descriptor, "rb") as copy:
        size = os.fstat(descriptor).st_size
        with ProgressLine(f"checking {os.path.basename(target)}", size) as progress:
            while data := copy.read(_PIECE):
                checks.add(data)
                progress.to(copy.tell())
    found = checks.all()
    if noted[1] != found:
        wrong = [a != b for a, b in zip(found, noted[1], strict=False)]
        place = (wrong.index(True) if True in wrong else len(wrong)) * _PIECE
        warn_once(
            f"The copy {target!r} of {path!r} is damaged from byte {place:,} on, and made again."
        )
        return False
    with suppress(OSError):  # Then they are verified again next time.
        _note(target, found)
    return True


def stamp_here(path: str, local: str, status: os.stat_result) -> str:
    """A text that changes when a file changes, of which `local_path` gave the path `local`.

    Each machine has its own copy, whose name contains the stamp of the original.
    """
    return stamp_of(status) if local == path else os.path.basename(local)


def local_path(path: str) -> str:
    """The path of a file on this machine: its own, or that of a copy if the file is remote.

    >>> local_path("data/a.npy")
    'data/a.npy'
    """
    if not is_remote(path):
        return path
    from bushel.files.remote import RemoteFile

    file = RemoteFile(path)
    if file.stamp == f"{file.size}-":
        raise FileError(
            f"{path!r} has to be copied to this machine, but the server does not say when it was "
            "changed, so bushel could not detect an outdated copy. Copy it yourself."
        )
    why = "is remote, and has to be read as a whole. So it is copied once,"
    # Some libraries interpret special characters in names.
    name = re.sub(r"[^\w.-]", "_", os.path.basename(without_query(path)))[-100:]
    return made_once(file, "copies", name, why, lambda: _whole(file))


def _whole(file: "RemoteFile") -> Iterator[bytes]:
    with ProgressLine(f"copying {os.path.basename(file.path)}", file.size) as progress:
        for start in range(0, file.size, _CHUNK):
            progress.to(start)
            yield file.read_once(start, min(start + _CHUNK, file.size))
