"""Opens remote files: by obstore where it can, else by fsspec; counts requests and bytes."""

import os
from collections.abc import Sequence
from typing import Any

from bushel.errors import FileError
from bushel.files import stores
from bushel.files.remote_paths import has_magic
from bushel.files.request_pool import requests
from bushel.files.retry import ShortAnswerError, insist
from bushel.files.stores import Span
from bushel.files.systems import system_of

# Names under which file systems report an ETag or a modification time.
_MARKS = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "updated", "mtime")


class Traffic:
    """Counts this process's requests of remote files. (With several threads, roughly.)"""

    def __init__(self) -> None:
        self.requests = self.bytes = 0

    def note(self, spans: Sequence[Span]) -> None:
        """Takes note of requested ranges."""
        self.requests += len(spans)
        self.bytes += sum(stop - start for start, stop in spans)


traffic = Traffic()


class Backend:
    """Reads a remote file, in the version that it had at first."""

    size: int
    stamp: str
    # Whether its bytes may go to the cache. If only the size is known, a changed file could pass
    # for the one before. And a file in this machine's memory, or on its disk, needs no copy there.
    keepable: bool

    def fetch(self, start: int, stop: int) -> Any:
        """Requests bytes, with retries."""
        return self.fetch_many([(start, stop)])[0]

    def fetch_many(self, spans: Sequence[Span]) -> list[Any]:
        """Requests many ranges in parallel; they are in the order of the file."""
        raise NotImplementedError


def _asked(path: str) -> Any:
    """The object to ask about a path: the stores here, or in a forked process a helper."""
    from bushel.files.beside import asked

    return asked(path)


def backend_of(path: str) -> Backend:
    """Opens a remote file."""
    return _InStore(path) if stores.serves(path) else _InSystem(path)


def expand_remote(path: str, endings: Sequence[str], unasked: bool = False) -> list[str]:
    """Lists the files that a remote name, glob or folder stands for.

    With many names, those with the ending of a file are returned `unasked`: a request for each
    would take long, and opening the file will tell whether it exists.
    """
    if unasked and path.lower().endswith(tuple(endings)) and not has_magic(path):
        return [path]
    names: list[str] = _asked(path).listed(path, endings)
    return names


class _InStore(Backend):
    """A file read by obstore."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._version = _asked(path).head(path)
        mark = self._version.etag or self._version.modified
        self.size, self.stamp = self._version.size, f"{self._version.size}-{mark}"
        self.keepable = bool(mark)
        self._place = None if stores.lost() else stores.store_of(path)
        self._pid = os.getpid()

    def fetch_many(self, spans: Sequence[Span]) -> list[Any]:
        traffic.note(spans)
        if self._place is None or self._pid != os.getpid():
            return list(_asked(self._path).fetch(self._path, self._version, spans))
        return stores.fetch_from(self._place, self._path, self._version, spans)


class _InSystem(Backend):
    """A file of any file system of fsspec."""

    def __init__(self, path: str) -> None:
        self._path = path
        system, inner = system_of(path)
        system.invalidate_cache()
        info = insist(lambda: system.info(inner), path, "the size")
        if info.get("type") == "directory":
            raise FileError(f"{path!r} is a folder, and a file was expected.")
        if info.get("size") is None:
            raise FileError(f"{path!r} cannot be read by ranges: the server does not say its size.")
        self.size = int(info["size"])
        mark = next((str(info[name]) for name in _MARKS if info.get(name)), "")
        self.stamp = f"{self.size}-{mark or info.get('created', '')}"
        here = path.startswith(("memory://", "file://", "local://")) or "::" in path
        self.keepable = bool(mark) and not here

    def fetch_many(self, spans: Sequence[Span]) -> list[Any]:
        traffic.note(spans)
        return requests.each(self._fetch, spans)

    def _fetch(self, span: Span) -> bytes:
        start, stop = span
        system, inner = system_of(self._path)

        def ask() -> bytes:
            data = bytes(system.cat_file(inner, start=start, end=stop))
            if len(data) != stop - start:
                raise ShortAnswerError(f"an answer of {len(data):,} bytes for {stop - start:,}")
            return data

        return insist(ask, self._path, f"bytes {start:,} to {stop:,}")
