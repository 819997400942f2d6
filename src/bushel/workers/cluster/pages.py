"""Status pages on a node's disk, which show what its workers are doing.

A page outlives its worker, so that the element that killed it can be named; it is read on the same
node, and then removed. A page that was never read is removed an hour later, by the next worker that
starts there.
"""

import mmap
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bushel.workers.cluster.cluster import NOTHING_NOTED, Noted
from bushel.workers.status import Status

_SUFFIX = ".notes"
_OLD_SECONDS = 3600.0


def new_page() -> tuple[str, Status]:
    """Makes a page for this process: its path, and a function that writes on it."""
    folder = _folder()
    _sweep(folder)
    descriptor, path = tempfile.mkstemp(_SUFFIX, f"{os.getpid()}-", folder)
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return path, Status(descriptor)
    finally:
        os.close(descriptor)


def read_page(path: str) -> Noted:
    """The last note on a page of this node, which is removed."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return NOTHING_NOTED
    try:
        return Status(descriptor).read()
    finally:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(path)


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"bushel-notes-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user's alone. Remove it.")
    return folder


def _sweep(folder: Path) -> None:
    for page in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            if time.time() - page.stat().st_mtime > _OLD_SECONDS and not _is_alive(page):
                page.unlink()


def _is_alive(page: Path) -> bool:
    try:
        os.kill(int(page.name.partition("-")[0]), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:  # It belongs to another user.
        return True
    return True
