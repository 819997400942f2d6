"""Repeats requests that fail transiently: which, how often, after which delays."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from bushel.errors import FileError, MissingFileError

T = TypeVar("T")

MOST_ATTEMPTS = 7
# The longest pause before the second attempt; it doubles with each further attempt: 6.3 s in all.
FIRST_WAIT_SECONDS = 0.1

# Errors that the next attempt would have again.
_LASTING = (
    *(FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError),
    *(TypeError, ValueError, LookupError, AttributeError, NotImplementedError, ImportError),
)


class ShortAnswerError(Exception):
    """A server sent fewer, or more, bytes than were requested."""


def insist(request: Callable[[], T], path: str, what: str) -> T:
    """Repeats a request until it succeeds, or fails for a lasting reason.

    `what` completes "… could not be read".

    >>> insist(lambda: b"abc", "s3://bucket/key", "bytes 0 to 3")
    b'abc'
    """
    for attempt in range(1, MOST_ATTEMPTS + 1):
        try:
            return request()
        except FileError:
            raise
        except _LASTING as error:
            raise _refusal(error, path, what) from error
        except Exception as error:
            if attempt == MOST_ATTEMPTS:
                raise given_up(error, path, what, attempt) from error
        # Random, so that many requests that failed together are not repeated together.
        time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))
    raise AssertionError("unreachable")


def given_up(error: BaseException, path: str, what: str, attempts: int) -> FileError:
    """The error that says how often a request was tried."""
    return FileError(
        f"{what} of {path!r} could not be read, in {attempts} attempts; the last one failed with "
        f"{_told(error)}."
    )


def _refusal(error: BaseException, path: str, what: str) -> FileError:
    if isinstance(error, FileNotFoundError):
        return MissingFileError(f"there is no file {path!r}.")
    if isinstance(error, PermissionError):
        return FileError(
            f"{path!r} may not be read: {_told(error)}. Check the credentials in the environment, "
            "or in fsspec's configuration."
        )
    return FileError(f"{what} of {path!r} could not be read: {_told(error)}.")


def _told(error: BaseException) -> str:
    text = str(error).strip().rstrip(".")
    if isinstance(error, ShortAnswerError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
