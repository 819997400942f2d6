"""The folder that shards are written to: one process at a time; notes of finished shards.

While shards are being written, a folder beside them has the plan, a note for each finished shard,
and unfinished files. A shard counts as finished when its note and the shard itself exist; its note
is written first, so that a process that is killed between the two leaves nothing that would be
trusted.
"""

import hashlib
import json
import os
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bushel.core.limits import refusal
from bushel.errors import BushelError, FileError, PlanError
from bushel.files.paths import is_remote
from bushel.files.whole import lock_now, rename, sync_folder, written_whole
from bushel.sources.written.manifest import (
    Part,
    WrittenShard,
    manifest_name,
    shard_from,
    stem_of,
    work_name,
)

_MOST_NOTE_BYTES = 1 << 28
_AT_ONCE = 1 << 20


class Folder(ABC):
    """The folder to which a dataset is written: by name, each file complete."""

    def __init__(self, folder: str, pattern: str) -> None:
        self.folder, self.pattern = folder, pattern
        self.work = work_name(pattern)
        self.manifest = manifest_name(pattern)
        self.origins = f"{stem_of(pattern)}origins"

    def path(self, name: str) -> str:
        """The path of a file of that name."""
        return f"{self.folder}/{name}" if self.folder else name

    @abstractmethod
    @contextmanager
    def alone(self) -> Iterator[None]:
        """Makes the folder, and makes sure that no other process writes there."""

    @abstractmethod
    @contextmanager
    def private(self, name: str) -> Iterator[str]:
        """The path of a local file to write, which is removed when the block ends."""

    @abstractmethod
    @contextmanager
    def lasting(self, private: str) -> Iterator[None]:
        """Syncs a complete file to the disk while the block runs; done at its end."""

    @abstractmethod
    def publish(self, private: str, name: str) -> None:
        """Gives a complete, synced file its name."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Writes a small file."""

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """Reads a small file; None if it does not exist."""

    @abstractmethod
    def sizes(self, inside: str = "") -> dict[str, int]:
        """The files of the folder, or of a subfolder, and their sizes."""

    @abstractmethod
    def remove(self, names: list[str]) -> None:
        """Removes files."""

    @abstractmethod
    def remove_folder(self, name: str) -> None:
        """Removes a folder and its content."""

    def note(self, number: int, shard: WrittenShard, digest: str) -> None:
        """Notes that a shard is about to be published."""
        told = {**shard.to_json(), "plan": digest, "number": number}
        if shard.state is not None:
            told["state"] = shard.state
        self.put(f"{self.work}/{number:05d}.json", json.dumps(told).encode())

    def noted(self, digest: str) -> dict[int, WrittenShard]:
        """The finished shards, by number."""
        there = self.sizes()
        found: dict[int, WrittenShard] = {}
        for name in self.sizes(self.work):
            stem, ending = os.path.splitext(name)
            if ending != ".json" or not stem.isdigit():
                continue
            try:
                told = json.loads(self.get(f"{self.work}/{name}") or b"")
                shard = shard_from(told)
            except (BushelError, ValueError, KeyError, TypeError, RecursionError):
                continue  # Cut short by a crash of the machine; the shard is made again.
            if told.get("plan") == digest and there.get(shard.file.name) == shard.file.bytes:
                found[int(stem)] = shard
        return found


def part_of(path: str, name: str) -> Part:
    """The name, size and digest of a complete local file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_AT_ONCE):
            digest.update(data)
            size += len(data)
    return Part(name, size, digest.hexdigest())


def folder_of(to: str) -> "Folder":
    """The folder of a path whose last part is the pattern of the shards."""
    if is_remote(to):
        from bushel.write.far_folder import FarFolder

        folder, _, pattern = to.rpartition("/")
        return FarFolder(folder, pattern)
    folder, pattern = os.path.split(os.path.abspath(os.path.expanduser(to)))
    return LocalFolder(folder, pattern)


@contextmanager
def _told(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, BushelError):
            raise
        why = refusal(error, path)
        if isinstance(error, FileExistsError):
            # It is in the way of a folder to make beside the shards.
            why += f" ({os.fspath(error.filename)!r} is no folder)"
        raise FileError(f"{path!r} {what}: {why}.") from error


class _Sync(threading.Thread):
    """Waits until a file is synced to the disk; other work goes on meanwhile."""

    def __init__(self, path: str) -> None:
        super().__init__(name="bushel-sync", daemon=True)
        self._path = path
        # The disk reports an error once, to the first caller.
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            with open(self._path, "rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            self.error = error


class LocalFolder(Folder):
    """A local folder, or one that is mounted."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        work = self.path(self.work)
        with _told(self.folder, "cannot be written to"):
            os.makedirs(work, exist_ok=True)
            lock = os.open(work, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if not lock_now(lock):
                raise PlanError(
                    f"{self.path(self.pattern)!r} is being written by another process. Wait until "
                    "that is done, or write elsewhere."
                )
            try:
                with self._unfinished_files(os.path.join(work, "tmp")):
                    yield
            finally:
                with suppress(OSError):
                    os.rmdir(work)  # Only if it has nothing that would be of use later.
        finally:
            os.close(lock)

    @contextmanager
    def _unfinished_files(self, folder: str) -> Iterator[None]:
        # Unfinished files of a process that was killed. A worker of it that still runs finds them
        # gone, and gives up.
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with _told(self.folder, "cannot be written to"):
                os.mkdir(folder)
            yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def private(self, name: str) -> Iterator[str]:
        short = os.path.basename(name)[:50]
        path = os.path.join(self.path(self.work), "tmp", f"{short}.{os.urandom(8).hex()}")
        try:
            with _told(self.path(name), "cannot be written"):
                yield path
        finally:
            with suppress(OSError):
                os.unlink(path)

    @contextmanager
    def lasting(self, private: str) -> Iterator[None]:
        sync = _Sync(private)
        sync.start()
        try:
            yield
        finally:
            sync.join()
        if sync.error is not None:
            raise sync.error

    def publish(self, private: str, name: str) -> None:
        path = self.path(name)
        with _told(path, "cannot be written"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            # `lasting` has synced its content, and its name is synced with that of the manifest,
            # the last.
            rename(private, path, lasting=False)

    def put(self, name: str, data: bytes) -> None:
        path = self.path(name)
        # Notes are verified when they are read, and made again if necessary.
        lasting = not name.startswith(self.work)
        with _told(path, "cannot be written"), written_whole(path, lasting=lasting) as file:
            file.write(data)

    def get(self, name: str) -> bytes | None:
        with (
            _told(self.path(name), "cannot be read"),
            suppress(FileNotFoundError),
            open(self.path(name), "rb") as file,
        ):
            return file.read(_MOST_NOTE_BYTES)
        return None

    def sizes(self, inside: str = "") -> dict[str, int]:
        try:
            with os.scandir(self.path(inside) if inside else self.folder) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def remove(self, names: list[str]) -> None:
        for name in names:
            with _told(self.path(name), "cannot be removed"), suppress(FileNotFoundError):
                os.unlink(self.path(name))
        sync_folder(self.folder)

    def remove_folder(self, name: str) -> None:
        shutil.rmtree(self.path(name), ignore_errors=True)


def scratch(name: str) -> "tempfile.TemporaryDirectory[str]":
    """A local folder for files that are uploaded when they are complete."""
    return tempfile.TemporaryDirectory(prefix=f"bushel-{os.path.basename(name)[:30]}-")
