"""The file of `compact(cache=path)`: positions, and the pipeline that they belong to."""

import os
from typing import Any

import numpy as np

from bushel.core.limits import refusal
from bushel.core.positions import Positions
from bushel.errors import FileError
from bushel.files.container import DamagedError, ForeignError
from bushel.files.numbers import read_numbers, write_numbers
from bushel.files.private import warn_once
from bushel.files.whole import remove_leftovers, written_whole

_VERSION = 3
_COLUMN = "kept"
# How files before version 3 begin. They are made again.
_OLDER = b"BUSHELKP"


def read_kept(path: str, of: Any, length: int) -> Positions | None:
    """The positions in a file; None if it does not exist or belongs to another pipeline.

    A file that is not ours is an error, as it would be overwritten.
    """
    try:
        # Non-blocking: opening a pipe would wait until some process writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if os.pread(descriptor, len(_OLDER), 0) == _OLDER:
                return None
            footer, columns = read_numbers(descriptor, [_COLUMN], _fail)
        finally:
            os.close(descriptor)
        if footer != {"version": _VERSION, "of": of}:
            return None
        kept: Positions = np.array(columns[_COLUMN][:])
    except FileNotFoundError:
        return None
    except DamagedError as error:
        warn_once(f"{path!r}, which `compact` made, is damaged {error}, and made again.")
        return None
    except ForeignError:
        raise FileError(
            f"{path!r} is no file that `compact` made. Give `cache` another path, or remove that "
            "file."
        ) from None
    except OSError as error:
        raise FileError(f"{path!r} cannot be read: {refusal(error, path)}.") from None
    # It is data to verify: positions in order, and within the dataset.
    in_order = bool((np.diff(kept) > 0).all())
    within = not len(kept) or (kept[0] >= 0 and kept[-1] < length)
    return kept if in_order and within else None


def _fail(name: str, error: DamagedError) -> Any:
    raise error


def write_kept(path: str, of: Any, kept: Positions) -> None:
    """Writes positions to a file, atomically."""
    path = os.path.abspath(path)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        remove_leftovers(path)
        with written_whole(path) as out:
            write_numbers(out.write, {"version": _VERSION, "of": of}, {_COLUMN: kept})
    except OSError as error:
        raise FileError(f"{path!r} cannot be written: {refusal(error, path)}.") from None
