"""The cache folder (`BUSHEL_CACHE`, its size); checks that kept files belong to this user alone.

Stored files are trusted when they are read again, so no other user may have written them: a private
folder (0700) belongs to the user and is no link, and so does every file that is opened in it. A
cache folder may be shared by several users; each has folders of their own in it.
"""

import errno
import logging
import os
import stat
from functools import lru_cache

from bushel.errors import FileError, PlanError

_log = logging.getLogger("bushel")

_DEFAULT_BYTES = 10_000_000_000
_WAY_OUT = "Remove it, or name another folder in the environment variable BUSHEL_CACHE."


def cache_folder() -> str:
    """The folder for files that bushel can make again."""
    chosen = os.environ.get("BUSHEL_CACHE")
    if chosen:
        return chosen
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "bushel")


def cache_bytes() -> int:
    """The most bytes of each folder in the cache folder, from the environment."""
    text = os.environ.get("BUSHEL_CACHE_BYTES", "")
    try:
        return int(float(text)) if text else _DEFAULT_BYTES
    except (ValueError, OverflowError):
        raise PlanError(
            f"BUSHEL_CACHE_BYTES is a number of bytes, and 0 for no cache; it is {text!r}."
        ) from None


def kept_folder(name: str) -> str:
    """The path of this user's folder of that name in the cache folder; it may not exist yet."""
    return os.path.join(cache_folder(), f"{name}-{os.geteuid()}")


@lru_cache(maxsize=1024)
def warn_once(text: str) -> None:
    """Warns, once a process, about a feature that is unavailable, or a file that is made again."""
    _log.warning("%s", text)


def make_private(folder: str, way_out: str = _WAY_OUT) -> None:
    """Makes a folder that belongs to this user alone, or checks an existing one.

    Raises a FileError if it belongs to another user, and an OSError if it cannot be made.
    """
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        os.makedirs(folder, 0o700, exist_ok=True)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(folder, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            what = "a link" if os.path.islink(folder) else "no folder"
            raise _refused(folder, f"is {what}", way_out) from None
        raise
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise _refused(folder, _belongs_to(status), way_out)
        if status.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def open_ours(path: str, flags: int, mode: int = 0o600, way_out: str = _WAY_OUT) -> int:
    """Opens a file that only this user can have made; returns its descriptor.

    Raises a FileError for a link, or a file of another user.
    """
    try:
        # Non-blocking: opening a pipe would wait until some process writes to it.
        wanted = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, wanted, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _refused(path, "is a link", way_out) from None
        raise
    try:
        _check_ours(path, os.fstat(descriptor), bool(flags & (os.O_WRONLY | os.O_RDWR)), way_out)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_ours(path: str, status: os.stat_result, writing: bool, way_out: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "is no regular file", way_out)
    if status.st_uid != os.geteuid():
        raise _refused(path, _belongs_to(status), way_out)
    if status.st_mode & 0o022:
        problem = f"may be written by others (mode {stat.S_IMODE(status.st_mode):o})"
        raise _refused(path, problem, way_out)
    if writing and status.st_nlink > 1:
        raise _refused(path, "is another file too, by a second name", way_out)


def is_no_easier_to_write(status: os.stat_result, than: os.stat_result) -> bool:
    """Whether all users who can write a file can write another one as well."""
    if status.st_uid not in (os.geteuid(), than.st_uid, 0):
        return False
    if status.st_mode & 0o020 and status.st_gid != than.st_gid:
        return False
    return not status.st_mode & ~than.st_mode & 0o022


def _belongs_to(status: os.stat_result) -> str:
    return f"belongs to user {status.st_uid}, and this process runs as {os.geteuid()}"


def _refused(path: str, problem: str, way_out: str) -> FileError:
    return FileError(f"{path!r} {problem}: it is not believed, nor written to. {way_out}")
