"""The way to files far away: fsspec's file systems, of which a process has one of each kind."""

import os
import sys
import threading
from typing import Any

from bushel.errors import FileError, MissingPackageError, PlanError
from bushel.files.retry import ShortAnswerError, insist, status_of

# A request may take this long, and longer where it asks for much.
PATIENCE_SECONDS = 60.0
_SLOWEST_BYTES_PER_SECOND = 1 << 16
# A server that knows no ranges sends the whole file each time; beyond this that is no way to read.
_MOST_WHOLE = 1 << 26
# What a file system may call the things that are others when a file is.
_MARKS = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "updated", "mtime")


class Link:
    """A remote file, as it was when it was first asked for."""

    def __init__(self, path: str) -> None:
        self.path = path
        system, inner = system_of(path)
        system.invalidate_cache()
        info = insist(lambda: info_of(system, inner), path, "the size")
        if info.get("type") == "directory":
            raise FileError(f"{path!r} is a folder, and a file was expected.")
        if info.get("size") is None:
            raise FileError(f"{path!r} cannot be read by ranges: the server does not say its size.")
        self.size = int(info["size"])
        self._marks = {name: str(info[name]) for name in _MARKS if info.get(name)}
        mark = next(iter(self._marks.values()), "")
        self.stamp = f"{self.size}-{mark or info.get('created', '')}"
        # Where only the size is known, a file that was changed could pass for the one before.
        # And what is in this machine's memory or on its disk need not be kept there again.
        here = path.startswith(("memory://", "file://", "local://")) or "::" in path
        self.keepable = bool(mark) and not here

    def fetch(self, start: int, stop: int) -> bytes:
        """Asks for bytes, again if need be."""
        what = f"bytes {start:,} to {stop:,}"
        return insist(lambda: self._whole(self._ask(start, stop), start, stop), self.path, what)

    def _whole(self, data: bytes, start: int, stop: int) -> bytes:
        if len(data) != stop - start:
            raise ShortAnswerError(f"an answer of {len(data):,} bytes for {stop - start:,}")
        return data

    def _ask(self, start: int, stop: int) -> bytes:
        system, inner = system_of(self.path)
        if not getattr(system, "async_impl", False):
            return bytes(system.cat_file(inner, start=start, end=stop))
        if hasattr(system, "_call_s3"):
            ask: Any = self._ask_s3
        elif hasattr(system, "set_session") and self.path.startswith("http"):
            ask = self._ask_http
        else:
            ask = _ask_any
        patience = PATIENCE_SECONDS + (stop - start) / _SLOWEST_BYTES_PER_SECOND
        try:
            data = _fsspec(self.path).asyn.sync(
                system.loop, ask, system, inner, start, stop, timeout=patience
            )
        except Exception as error:
            if status_of(error) == 416:
                raise self._replaced(f"it had {self.size:,} bytes and now is shorter") from error
            raise
        return bytes(data)

    async def _ask_s3(self, system: Any, inner: str, start: int, stop: int) -> Any:
        bucket, key, version = system.split_path(inner)
        more = {"VersionId": version} if version else {}
        span = f"bytes={start}-{stop - 1}"
        answer = await system._call_s3("get_object", Bucket=bucket, Key=key, Range=span, **more)
        async with answer["Body"] as body:
            self._compare({"ETag": answer.get("ETag")})
            return await body.read()

    async def _ask_http(self, system: Any, url: str, start: int, stop: int) -> Any:
        options = dict(system.kwargs)
        headers = {**options.pop("headers", {}), "Range": f"bytes={start}-{stop - 1}"}
        headers["Accept-Encoding"] = "identity"
        session = await system.set_session()
        async with session.get(system.encode_url(url), headers=headers, **options) as answer:
            answer.raise_for_status()
            self._compare(answer.headers)
            if answer.status == 206:
                return await answer.read()
            if self.size > _MOST_WHOLE:
                raise FileError(
                    f"{self.path!r} cannot be read by ranges: the server sends all of its "
                    f"{self.size:,} bytes each time. Copy it to this machine first."
                )
            data = await answer.read()
            return data[start:stop] if len(data) == self.size else data

    def _compare(self, answer: Any) -> None:
        """Notices that an answer is from another file than the one that was first asked for."""
        for name in ("ETag", "Last-Modified"):
            before, now = self._marks.get(name), answer.get(name)
            if before and now:
                if before.removeprefix("W/") != now.removeprefix("W/"):
                    raise self._replaced(f"its {name} was {before} and now is {now}")
                return

    def _replaced(self, how: str) -> FileError:
        return FileError(
            f"{self.path!r} was replaced while it was being read: {how}. Make the source anew."
        )


async def _ask_any(system: Any, inner: str, start: int, stop: int) -> Any:
    return await system._cat_file(inner, start=start, end=stop)


def info_of(system: Any, inner: str) -> Any:
    """What a file system knows of a path; it may not think about it for ever."""
    if not getattr(system, "async_impl", False):
        return system.info(inner)
    sync = _fsspec(inner).asyn.sync
    return sync(system.loop, system._info, inner, timeout=PATIENCE_SECONDS)


class _Systems:
    """The file systems of this process. Their connections do not survive a fork."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: dict[tuple[str, str, int], Any] = {}


_systems = _Systems()


def _begin() -> None:
    global _systems
    _systems = _Systems()
    asynchronous = sys.modules.get("fsspec.asyn")
    if asynchronous is not None:
        asynchronous.reset_lock()  # Newer versions do that themselves.


os.register_at_fork(after_in_child=_begin)


def system_of(path: str) -> tuple[Any, str]:
    """The file system of a path, and what it calls the path.

    Options come from the environment and from fsspec's configuration: every process finds them
    there, and no key travels in a pickle.
    """
    fsspec = _fsspec(path)
    protocol = path.partition("://")[0]
    systems = _systems
    try:
        if "::" in path:
            chained: tuple[Any, str] = fsspec.core.url_to_fs(path)
            return chained
        kind = fsspec.get_filesystem_class(protocol)
        options = kind._get_kwargs_from_urls(path)
        key = protocol, repr(sorted(options.items())), _settings(fsspec)
        with systems.lock:
            if key not in systems.made:
                # Not one that is shared with other code, whose options may be others.
                made = fsspec.filesystem(protocol, skip_instance_cache=True, **options)
                if hasattr(made, "_call_s3"):
                    # `insist` does that, and says how often; three that do would be 150 attempts.
                    made.retries = 1
                    made.config_kwargs.setdefault("retries", {"max_attempts": 0})
                systems.made[key] = made
        return systems.made[key], str(kind._strip_protocol(path))
    except ImportError as error:
        raise MissingPackageError(f"{path!r} cannot be read: {error}", "remote") from error
    except ValueError as error:
        raise PlanError(f"{path!r} cannot be read: {error}.") from error


def _settings(fsspec: Any) -> int:
    """Another number when the environment or the configuration is: then another system is made."""
    places = ("AWS_", "AZURE_", "GCE_", "GOOGLE_", "FSSPEC_", "HTTP", "NO_PROXY")
    environment = [item for item in os.environ.items() if item[0].upper().startswith(places)]
    return hash((tuple(sorted(environment)), repr(fsspec.config.conf)))


def _fsspec(path: str) -> Any:
    try:
        import fsspec
        import fsspec.asyn
    except ImportError as error:
        raise MissingPackageError(f"{path!r} is read through fsspec", "remote") from error
    return fsspec
