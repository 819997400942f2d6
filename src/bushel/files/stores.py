"""Object stores and web servers by obstore: `s3://`, `gs://`, `az://`, `https://`.

obstore keeps connections, and repeats requests that failed transiently. In a process that was
forked from one that used it, it does not work: there `beside.py` calls it in another process.
"""

import os
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, TypeAlias

from bushel.errors import FileError, MissingFileError, MissingPackageError, PlanError
from bushel.files import retry
from bushel.files.aws import credentials_for, region_of
from bushel.files.request_pool import MOST_REQUESTS, RequestPool, requests
from bushel.files.systems import options_for_obstore, settings

# An attempt ends after this many silent seconds, however long the whole answer may take.
PATIENCE_SECONDS = 60.0
_LONGEST = timedelta(hours=1)
_LONGEST_RETRYING = timedelta(minutes=5)
# A server without ranges sends the whole file each time; larger files cannot be read in this way.
_MOST_WHOLE = 1 << 26
# A store is a set of connections. Most files share one; an address with a query has its own.
_MOST_STORES = 256
# One call of obstore makes ten requests in parallel.
_in_bulk = RequestPool(MOST_REQUESTS // 10)

_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
_WEB = ("http", "https")
_OBJECTS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
# An address without characters that could be escaped in several ways.
_PLAIN = re.compile(r"(https?://[^/?#@]+)/((?:[\w~-][\w.~-]*/)*[\w~-][\w.~-]*)", re.ASCII)

Span: TypeAlias = tuple[int, int]
# A store, and the name of a file in it.
StorePath: TypeAlias = tuple[Any, str]


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a file in an answer of a server."""

    size: int
    etag: str
    modified: str

    def difference(self, other: "Version") -> str:
        """How another answer shows another version; empty if it does not."""
        if self.etag and other.etag:
            if self.etag.removeprefix("W/") == other.etag.removeprefix("W/"):
                return ""
            return f"its ETag was {self.etag} and now is {other.etag}"
        if self.modified and other.modified and self.modified != other.modified:
            return f"its Last-Modified was {self.modified} and now is {other.modified}"
        if self.size != other.size:
            return f"it had {self.size:,} bytes and now has {other.size:,}"
        return ""


def serves(path: str) -> bool:
    """Whether obstore can read a path, with the options that are set for it."""
    scheme, _, rest = path.partition("://")
    if "::" in path or options_for_obstore(scheme) is None:
        return False
    # It does not support names with empty parts, and versions of objects.
    return scheme in _WEB or (scheme in _OBJECTS and "//" not in rest and "?versionId" not in rest)


def head(path: str) -> Version:
    """The current version of a file."""
    store, key = store_of(path)
    try:
        if path.startswith(_WEB):
            try:
                return _version(package(path).head(store, key))
            except Exception:
                # Some servers, and signed addresses, allow only GET.
                return _version(package(path).get(store, key).meta)
        return _version(package(path).head(store, key))
    except Exception as error:
        if isinstance(error, FileNotFoundError) and _is_folder(path):
            raise FileError(f"{path!r} is a folder, and a file was expected.") from error
        raise _refusal(error, path, "the size") from error


def _is_folder(path: str) -> bool:
    if path.startswith(_WEB):
        return False
    store, key = store_of(path)
    with suppress(Exception):  # The bucket does not exist, or it may not be listed.
        found = package(path).list_with_delimiter(store, key.rstrip("/") + "/")
        return bool(found["objects"] or found["common_prefixes"])
    return False


def fetch(path: str, version: Version, spans: Sequence[Span]) -> list[Any]:
    """The bytes of spans of a file; spans are in the order of the file, and do not overlap.

    The last ones are requested when all others have arrived, and their answers have a version: if
    it is unchanged, so it was for the ones before. Those come in bulk, which takes two thirds of
    the time. Each answer is an object with a buffer.
    """
    return fetch_from(store_of(path), path, version, spans)


def fetch_from(at: StorePath, path: str, version: Version, spans: Sequence[Span]) -> list[Any]:
    """The same, given the store."""
    store, key = at
    parts: list[Any] = [None] * len(spans)
    bulk = max(0, len(spans) - MOST_REQUESTS)
    # Every third: spans that touch must not be in one call, which would merge them.
    hands = [range(first, bulk, 3) for first in range(min(3, bulk))]

    def many(numbers: range) -> None:
        with suppress(Exception):  # An error is raised below, where the bytes are requested again.
            answers = package(path).get_ranges(
                store,
                key,
                starts=[spans[number][0] for number in numbers],
                ends=[spans[number][1] for number in numbers],
                coalesce=0,
            )
            for number, answer in zip(numbers, answers, strict=True):
                if len(answer) == spans[number][1] - spans[number][0]:
                    parts[number] = answer

    _in_bulk.each(many, hands)
    rest = [number for number, part in enumerate(parts) if part is None]

    def one(number: int) -> None:
        parts[number] = _fetch_one(at, path, version, spans[number])

    try:
        requests.each(one, rest)
    except _NoRangesError:
        whole = _fetch_whole(at, path, version)
        return [whole[start:stop] for start, stop in spans]
    return parts


class _NoRangesError(FileError):
    """A server ignores ranges, and sends whole files."""


def _fetch_one(at: StorePath, path: str, version: Version, span: Span) -> bytes:
    store, key = at
    obstore = package(path)
    start, stop = span
    what = f"bytes {start:,} to {stop:,}"

    def ask() -> bytes:
        try:
            answer = obstore.get(store, key, options={"range": span})
            meta = answer.meta
            if not version.etag or meta["e_tag"] != version.etag:
                _compare(path, version, _version(meta))
            try:
                # In a single chunk, whose `bytes` is free: `bytes()` would copy.
                data: bytes = next(answer.stream(min_chunk_size=stop - start), b"")
            except obstore.exceptions.GenericError as error:
                short = retry.ShortAnswerError("an answer that broke off")
                if version.etag:  # Then obstore has repeated requests for the rest of it.
                    raise retry.given_up(short, path, what, retry.MOST_ATTEMPTS) from error
                raise short from error
        except (FileError, retry.ShortAnswerError):
            raise
        except obstore.exceptions.NotSupportedError as error:
            raise _NoRangesError from error
        except Exception as error:
            if not isinstance(error, FileNotFoundError):
                # A truncated file has no such bytes.
                _compare(path, version, head(path))
            raise _refusal(error, path, what) from error
        if len(data) != stop - start:
            raise retry.ShortAnswerError(f"an answer of {len(data):,} bytes for {stop - start:,}")
        return data

    return retry.insist(ask, path, what)


def _fetch_whole(at: StorePath, path: str, version: Version) -> memoryview:
    if version.size > _MOST_WHOLE:
        raise FileError(
            f"{path!r} cannot be read by ranges: the server sends all of its "
            f"{version.size:,} bytes each time. Copy it to this machine first."
        )
    store, key = at
    try:
        answer = package(path).get(store, key)
        _compare(path, version, _version(answer.meta))
        return memoryview(answer.bytes())
    except FileError:
        raise
    except Exception as error:
        raise _refusal(error, path, "the whole") from error


def _version(meta: Any) -> Version:
    modified = meta["last_modified"]
    # If a server sends no date, obstore says 1970.
    date = format_datetime(modified, usegmt=True) if modified.timestamp() else ""
    return Version(int(meta["size"]), meta["e_tag"] or "", date)


def _compare(path: str, before: Version, now: Version) -> None:
    how = before.difference(now)
    if how:
        raise FileError(
            f"{path!r} was replaced while it was being read: {how}. Make the source anew."
        )


def _refusal(error: BaseException, path: str, what: str) -> FileError:
    if isinstance(error, FileNotFoundError):
        return MissingFileError(f"there is no file {path!r}.")
    errors = package(path).exceptions
    retries, reason = _told(str(error))
    if isinstance(error, (errors.PermissionDeniedError, errors.UnauthenticatedError)):
        return FileError(
            f"{path!r} may not be read: {reason}. Check the credentials in the environment, "
            "or in fsspec's configuration."
        )
    often = f", in {retries + 1} attempts; the last one failed with" if retries else ":"
    return FileError(f"{what} of {path!r} could not be read{often} {reason}.")


def _told(text: str) -> tuple[int, str]:
    """How often obstore tried, and the last answer.

    >>> _told("Generic S3 error: Error performing GET http://a in 2ms, after 6 retries - no")
    (6, 'no')
    """
    # The first line is for users; the details after it are for programmers.
    line, _, details = text.strip().partition("\n")
    retries = re.search(r"after (\d+) retries", line)
    reason = line.rpartition(" - ")[2].strip(" :.")
    system = re.search(r'(?:message|error): "([^"]+)"|(?<=source: )(TimedOut)', details)
    said = f" ({system[1] or 'no answer in time'})" if system else ""
    return int(retries[1]) if retries else 0, reason + said


class _Stores:
    """The stores of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: OrderedDict[tuple[str, object], Any] = OrderedDict()


_stores = _Stores()
# Stores of the parent of this forked process: even freeing one may block for ever.
_lost: list[_Stores] = []


def _begin() -> None:
    global _stores
    if "obstore" in sys.modules:
        _lost.append(_stores)
    _stores = _Stores()


os.register_at_fork(after_in_child=_begin)


def lost() -> bool:
    """Whether obstore is broken in this process, as its parent used it."""
    return bool(_lost)


def store_of(path: str) -> StorePath:
    """The store of a path, made at its first use."""
    root, key = _place(path)
    which = root, settings()
    stores = _stores
    with stores.lock:
        store = stores.made.get(which)
        if store is None:
            store = stores.made[which] = _make(root, path)
            while len(stores.made) > _MOST_STORES:
                stores.made.popitem(last=False)
        stores.made.move_to_end(which)
    return store, key


def _place(path: str) -> tuple[str, str]:
    """The root of the store that has a path, and the name of the path in it.

    >>> _place("s3://bucket/a/b.txt"), _place("https://host/a/b.txt?key=1")
    (('s3://bucket', 'a/b.txt'), ('https://host/a/b.txt?key=1', ''))
    """
    if path.startswith(_WEB):
        plain = _PLAIN.fullmatch(path)
        return (plain[1], plain[2]) if plain else (path, "")
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{'gs' if scheme == 'gcs' else scheme}://{bucket}", key


def _make(root: str, path: str) -> Any:
    kinds = package(path).store
    # An address is used as it is; the root of an object store tells its kind.
    make = kinds.HTTPStore if root.startswith(_WEB) else kinds.from_url
    try:
        return make(root, **_config(root, path))
    except FileError:
        raise
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise PlanError(f"{path!r} cannot be read: {text}.") from error


def system_of(path: str) -> tuple[Any, str]:
    """An object store as a file system of fsspec, for listings and globs."""
    root, _ = _place(path)
    scheme, _, inner = path.partition("://")
    system = package(path).fsspec.FsspecStore(
        scheme, skip_instance_cache=True, **_config(root, path)
    )
    return system, inner


def _config(root: str, path: str) -> dict[str, Any]:
    """The options of a store: timeouts, retries and credentials."""
    scheme, _, bucket = root.partition("://")
    config = dict(options_for_obstore(scheme) or {})
    wait = timedelta(seconds=retry.FIRST_WAIT_SECONDS)
    config["retry_config"] = {
        "max_retries": retry.MOST_ATTEMPTS - 1,
        "backoff": {"init_backoff": wait, "max_backoff": wait * 64, "base": 2},
        "retry_timeout": _LONGEST_RETRYING,
    }
    config["client_options"] = {
        "allow_http": True,
        "read_timeout": timedelta(seconds=PATIENCE_SECONDS),
        "timeout": _LONGEST,
        **config.get("client_options", {}),
    }
    if scheme in ("s3", "s3a"):
        if "access_key_id" not in config:
            config |= credentials_for(path, config.pop("skip_signature", None))
        if "endpoint" not in config and not any(map(os.environ.get, _ENDPOINTS)):
            region = region_of(bucket)
            config |= {"region": region} if region else {}
    return config


def package(path: str) -> Any:
    """Imports obstore, for a path."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.fsspec
        import obstore.store
    except ImportError as error:
        raise MissingPackageError(f"{path!r} is read through obstore", "remote") from error
    return obstore
