"""The folder that shards are written to, and the notes of finished shards.

While shards are being written, a folder beside them has the plan, a note for each shard that is
done, and files that are not whole yet. A shard counts as done when its note and the shard itself
are there; its note is written first, so that a process that is killed between the two leaves
nothing that would be believed.
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
    """Where a dataset is written: by name, each file whole."""

    def __init__(self, folder: str, pattern: str) -> None:
        self.folder, self.pattern = folder, pattern
        self.work = work_name(pattern)
        self.manifest = manifest_name(pattern)
        self.origins = f"{stem_of(pattern)}origins"

    def path(self, name: str) -> str:
        """Where a file of that name is."""
        return f"{self.folder}/{name}" if self.folder else name

    @abstractmethod
    @contextmanager
    def alone(self) -> Iterator[None]:
        """Makes the folder, and sees to it that nobody else writes there."""

    @abstractmethod
    @contextmanager
    def private(self, name: str) -> Iterator[str]:
        """The path of a file of this machine to write, which is gone when the block ends."""

    @abstractmethod
    @contextmanager
    def lasting(self, private: str) -> Iterator[None]:
        """Has the disk take a file that is whole while the block runs; it has it at its end."""

    @abstractmethod
    def publish(self, private: str, name: str) -> None:
        """Gives a file that is whole, and lasting, its name."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Writes a small file."""

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """Reads a small file; None where there is none."""

    @abstractmethod
    def sizes(self, inside: str = "") -> dict[str, int]:
        """The files of the folder, or of one in it, and their sizes."""

    @abstractmethod
    def remove(self, names: list[str]) -> None:
        """Removes files."""

    @abstractmethod
    def remove_folder(self, name: str) -> None:
        """Removes a folder with all that is in it."""

    def note(self, number: int, shard: WrittenShard, digest: str) -> None:
        """Notes that a shard is about to be there."""
        told = {**shard.to_json(), "plan": digest, "number": number}
        if shard.state is not None:
            told["state"] = shard.state
        self.put(f"{self.work}/{number:05d}.json", json.dumps(told).encode())

    def noted(self, digest: str) -> dict[int, WrittenShard]:
        """The shards that are done, by their numbers."""
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
                continue  # Cut short by a machine that went down; the shard is made again.
            if told.get("plan") == digest and there.get(shard.file.name) == shard.file.bytes:
                found[int(stem)] = shard
        return found


def part_of(path: str, name: str) -> Part:
    """What there is to know of a file of this machine that is whole."""
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
            # In the way of a folder that this makes beside the shards.
            why += f" ({os.fspath(error.filename)!r} is no folder)"
        raise FileError(f"{path!r} {what}: {why}.") from error


class _Sync(threading.Thread):
    """Waits until the disk has a file; others compute meanwhile."""

    def __init__(self, path: str) -> None:
        super().__init__(name="bushel-sync", daemon=True)
        self._path = path
        # Of the disk, which tells it once, to whoever asks first.
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            with open(self._path, "rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            self.error = error


class LocalFolder(Folder):
    """A folder of this machine, or one that it sees as such."""

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
                    os.rmdir(work)  # If there is nothing in it that would be of use later.
        finally:
            os.close(lock)

    @contextmanager
    def _unfinished_files(self, folder: str) -> Iterator[None]:
        # What was being written when somebody was killed. A worker of theirs that is still there
        # finds that it is gone, and gives up.
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
            # What is in it was waited for by `lasting`, and names are with the manifest, the last.
            rename(private, path, lasting=False)

    def put(self, name: str, data: bytes) -> None:
        path = self.path(name)
        # Notes are checked when they are read, and made again if need be.
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
    """A folder of this machine for files that go elsewhere when they are whole."""
    return tempfile.TemporaryDirectory(prefix=f"bushel-{os.path.basename(name)[:30]}-")
