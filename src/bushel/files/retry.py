"""Requests that are made again when they fail by accident."""

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from bushel.errors import FileError, MissingFileError

T = TypeVar("T")

MOST_ATTEMPTS = 7
# Before the second attempt at most this long, then twice as long each time: 6.3 s in all.
FIRST_WAIT_SECONDS = 0.1

_MISSING = (404, 410)
_FORBIDDEN = (401, 403)
# "Come again": a timeout, too early, too many requests.
_PASSING = (408, 425, 429)


class ShortAnswerError(Exception):
    """A server sent less, or more, than it was asked for."""


def insist(request: Callable[[], T], path: str, what: str) -> T:
    """Makes a request until it succeeds, or fails for a reason that will not pass.

    `what` completes "… could not be read".

    >>> insist(lambda: b"abc", "s3://bucket/key", "bytes 0 to 3")
    b'abc'
    """
    for attempt in range(1, MOST_ATTEMPTS + 1):
        try:
            return request()
        except FileError:
            raise
        except Exception as error:
            if _lasts(error):
                raise _refusal(error, path, what) from error
            if attempt == MOST_ATTEMPTS:
                raise FileError(
                    f"{what} of {path!r} could not be read, in {attempt} attempts; the last one "
                    f"failed with {_told(error)}."
                ) from error
        # Many that failed together should not come again together.
        time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))
    raise AssertionError("unreachable")


def status_of(error: BaseException) -> int | None:
    """The status that a server answered with, if this error is about one.

    >>> error = OSError("no")
    >>> error.status = 503
    >>> status_of(error)
    503
    """
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(error, "status", None) or getattr(error, "code", None)
    if isinstance(status, int):
        return status
    # The errors of the system stand for answers; a connection that broke has a cause as well,
    # and the number in that is no answer of the server.
    if isinstance(error, OSError) and error.__cause__ is not None:
        return status_of(error.__cause__)
    return None


def _lasts(error: BaseException) -> bool:
    """Whether the next attempt would fail for the same reason."""
    status = status_of(error)
    if status is not None and status >= 400:
        return status < 500 and status not in _PASSING
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        # Some libraries call every failure to ask for a file a missing file.
        return _lasts(error.__cause__)
    refusals = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
    mistakes = (TypeError, ValueError, LookupError, AttributeError, NotImplementedError)
    return (
        isinstance(error, (*refusals, *mistakes, ImportError))
        or "Credentials" in type(error).__name__
    )


def _refusal(error: BaseException, path: str, what: str) -> FileError:
    status = status_of(error)
    if status in _MISSING or (status is None and isinstance(error, FileNotFoundError)):
        return MissingFileError(f"there is no file {path!r}.")
    if status in _FORBIDDEN or isinstance(error, PermissionError) or _lacks_credentials(error):
        return FileError(
            f"{path!r} may not be read: {_told(error)}. Check the credentials in the environment, "
            "or in fsspec's configuration."
        )
    return FileError(f"{what} of {path!r} could not be read: {_told(error)}.")


def _lacks_credentials(error: BaseException) -> bool:
    return "Credentials" in type(error).__name__


def _told(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip().rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
