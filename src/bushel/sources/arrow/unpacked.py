"""Parts on disk, as they are in memory: read through a map of the file, decoded by nobody.

They lie in bushel's cache folder, where all processes find them. What is there may be removed
at any time: a file that is in use stays until it is not.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

from bushel.files.index import cache_folder
from bushel.files.whole import written_whole
from bushel.sources.arrow.package import arrow

_ENDING = ".unpacked"
# Files that nobody has opened for so long make room for others.
_STALE_SECONDS = 3600.0
# Others need the disk too.
_LEAVE_FREE = 0.1


class Unpacked:
    """The parts of some files, in bushel's cache folder.

    Args:
        of: what the parts are of, with everything that they depend on.
        most_bytes: how much the folder may hold, whatever it is of; nothing is kept beyond.
    """

    def __init__(self, of: str, most_bytes: int) -> None:
        self._name = hashlib.sha256(f"{of}\n{_boot()}".encode()).hexdigest()[:32]
        self._most_bytes = most_bytes

    def open(self, number: int) -> list[Any] | None:
        """The record batches of a part, if it is there."""
        if not self._most_bytes:
            return None
        path = self._path(number)
        try:
            # The map stays when the file is closed, as long as anybody has a part of it.
            with arrow().memory_map(path) as mapped:
                reader = arrow().ipc.open_file(mapped)
                batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
            os.utime(path)
        except (OSError, ValueError):
            return None
        return batches

    def keep(self, number: int, schema: Any, tables: Iterable[Any], size: int) -> list[Any] | None:
        """Writes a part of about so many bytes if there is room, and gives its batches."""
        folder = _folder()
        try:
            os.makedirs(folder, exist_ok=True)
            if not self._has_room(folder, size):
                return None
            # Parts of an earlier start of the machine are never looked at, so none need last.
            with (
                written_whole(self._path(number), mode=0o600, lasting=False) as out,
                arrow().ipc.new_file(out, schema) as writer,
            ):
                for table in tables:
                    writer.write(table)
        except (OSError, arrow().ArrowException):
            return None  # A disk that is full, or a type that cannot be written.
        return self.open(number)

    def _path(self, number: int) -> str:
        return os.path.join(_folder(), f"{self._name}-{number}{_ENDING}")

    def _has_room(self, folder: str, size: int) -> bool:
        """Makes room for so many bytes, as far as that takes nothing from others."""
        disk = shutil.disk_usage(folder)
        if size > self._most_bytes or disk.free - size < _LEAVE_FREE * disk.total:
            return False
        files = [(entry.stat(), entry.path) for entry in os.scandir(folder)]
        total = sum(status.st_size for status, _ in files)
        now = time.time()
        for status, path in sorted(files, key=lambda file: file[0].st_mtime):
            if total + size <= self._most_bytes:
                break
            if now - status.st_mtime < _STALE_SECONDS:
                return False
            with suppress(OSError):
                os.unlink(path)
            total -= status.st_size
        return total + size <= self._most_bytes


def _folder() -> str:
    return os.path.join(cache_folder(), "unpacked")


@cache
def _boot() -> str:
    """Something that is another after the machine was started again.

    What was written shortly before a power cut may be there in part; nobody looks at it then.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
