"""Reads and checks the file `index.json` of a folder of shards, which is not trusted.

It says which shards there are. Nothing of it is believed that was not looked at: counts are
counts, and names are names of files in the folder.
"""

import json
import os
import re
from typing import Any

from bushel.core.frozen import frozen
from bushel.errors import FileError, PlanError
from bushel.files.local import ByteFile, open_file
from bushel.files.paths import is_remote

NAME = "index.json"
# More than any index has: one of a million shards has 500 MB.
_MOST_BYTES = 1 << 30
# Shards have places in them as numbers of four bytes.
MOST_SHARD_BYTES = (1 << 32) - 1
_PART = re.compile(r"[^\\\0]+")


@frozen
class FolderShard:
    """A file of records, as the index describes it."""

    path: str
    # Records that a source has of it, and things that it has places of: the same, but for tokens.
    records: int
    items: int
    # Of the file; where that is compressed as a whole, of what it becomes.
    bytes: int
    # The file that is compressed, and how; None where it is not.
    packed: tuple[str, str] | None
    # What its records are made of, which is up to the format.
    layout: Any


def path_of_index(folder: Any, kind: str) -> str:
    """Where the index of a folder is; the path of the index itself is as good."""
    if not isinstance(folder, (str, os.PathLike)) or isinstance(folder, bytes):
        raise PlanError(
            f"`{kind}` takes the folder that has the file {NAME!r} and the shards, and got "
            f"{type(folder).__name__}: {folder!r:.100}."
        )
    path = os.fspath(folder)
    if not is_remote(path):
        path = os.path.expanduser(path)
    if path.rpartition("/")[2] == NAME:
        return path
    if path.endswith((".mds", ".bin")) or any(sign in path for sign in "*?["):
        raise PlanError(
            f"shards are read by way of their index: name the folder that has {NAME!r} in it "
            f"instead of {path!r}."
        )
    return f"{path.rstrip('/')}/{NAME}"


def read_index(path: str) -> tuple[ByteFile, dict[str, Any]]:
    """The file of an index, and what it says."""
    file = open_file(path)
    if file.size > _MOST_BYTES:
        raise FileError(f"{path!r} has {file.size:,} bytes, and is no index of shards.")
    try:
        told = json.loads(bytes(file.read(0, file.size)))
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is no JSON ({error})") from None
    if not isinstance(told, dict):
        raise damaged(path, "it is no object")
    return file, told


def kind_of_index(folder: str) -> str | None:
    """Which format the shards of a folder have by its index: "mds", "litdata", or None."""
    try:
        _, told = read_index(f"{folder.rstrip('/')}/{NAME}")
    except FileError:
        return None
    if isinstance(told.get("shards"), list):
        return "mds"
    return "litdata" if isinstance(told.get("chunks"), list) and "config" in told else None


def path_in(index: str, name: Any) -> str:
    """The path of a file that an index names, which has to be in the folder of the index."""
    parts = name.split("/") if isinstance(name, str) else []
    if not parts or not all(_PART.fullmatch(part) and part not in (".", "..") for part in parts):
        raise damaged(index, f"{name!r:.100} should be the name of a file in the same folder")
    folder, slash, _ = index.rpartition("/")
    return f"{folder}{slash}{name}"


def count(index: str, value: Any, what: str, most: int = (1 << 62)) -> int:
    """A number of an index, which has to be one of something."""
    if type(value) is not int or not 0 <= value <= most:
        raise damaged(index, f"{what} should be a count, and is {value!r:.100}")
    return value


def damaged(path: str, problem: str) -> FileError:
    """The error of an index that cannot be what its writer wrote."""
    return FileError(f"{path!r} is no index of shards, or a damaged one: {problem}.")
