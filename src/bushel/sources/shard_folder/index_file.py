"""Reads and checks the file `index.json` of a folder of shards, which is not trusted.

It lists the shards. Everything in it is checked: counts are counts, and names are names of files in
the folder.
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
# Places in shards are numbers of four bytes.
MOST_SHARD_BYTES = (1 << 32) - 1
_PART = re.compile(r"[^\\\0]+")


@frozen
class FolderShard:
    """A file of records, as the index describes it."""

    path: str
    # The records that the source has of it, and the number of entries in its table of places: the
    # same, except for tokens.
    records: int
    items: int
    # The size of the file; of its content, if it is compressed as a whole.
    bytes: int
    # The compressed file, and its compression; None if it is not compressed.
    packed: tuple[str, str] | None
    # The structure of its records, which depends on the format.
    layout: Any


def path_of_index(folder: Any, kind: str) -> str:
    """The path of a folder's index; the path may be that of the index itself."""
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
    """The path of an index, and its content."""
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
    """The format of a folder's shards by its index: "mds", "litdata", or None."""
    try:
        _, told = read_index(f"{folder.rstrip('/')}/{NAME}")
    except FileError:
        return None
    if isinstance(told.get("shards"), list):
        return "mds"
    return "litdata" if isinstance(told.get("chunks"), list) and "config" in told else None


def path_in(index: str, name: Any) -> str:
    """The path of a file named in an index, which has to be in the folder of the index."""
    parts = name.split("/") if isinstance(name, str) else []
    if not parts or not all(_PART.fullmatch(part) and part not in (".", "..") for part in parts):
        raise damaged(index, f"{name!r:.100} should be the name of a file in the same folder")
    folder, slash, _ = index.rpartition("/")
    return f"{folder}{slash}{name}"


def count(index: str, value: Any, what: str, most: int = (1 << 62)) -> int:
    """A number in an index, which has to be a count."""
    if type(value) is not int or not 0 <= value <= most:
        raise damaged(index, f"{what} should be a count, and is {value!r:.100}")
    return value


def damaged(path: str, problem: str) -> FileError:
    """The error about an index that its writer cannot have written."""
    return FileError(f"{path!r} is no index of shards, or a damaged one: {problem}.")
