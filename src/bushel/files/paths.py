"""Expands names, globs and folders, local or remote, to files; suggests names if there are none."""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from bushel.errors import MissingFileError, PlanError

# The most remote names for which the server is asked whether they are folders.
_MOST_ASKED = 16


_SHARD = re.compile(r"-\d{5,}-of-\d{5,}$")


def is_remote(path: str) -> bool:
    """Whether a path has a protocol other than that of the local file system.

    >>> is_remote("s3://bucket/key"), is_remote("/data/a.parquet"), is_remote("C:/a")
    (True, False, False)
    """
    return "://" in path


def without_query(path: str) -> str:
    """A path up to the question mark, which begins the query of an address.

    >>> without_query("https://host/a.npz?key=1"), without_query("what?.txt")
    ('https://host/a.npz', 'what?.txt')
    """
    return path.partition("?")[0] if is_remote(path) else path


def expand(paths: Any, endings: Sequence[str] = ()) -> list[str]:
    """Lists the files that names, globs and folders stand for, in a fixed order.

    A folder stands for those of its files that have one of the `endings` (all files, if there are
    none), sorted by name with numbers as numbers. Files of a sequence keep its order.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in (10, 9):
    ...         pathlib.Path(folder, f"part-{number}.txt").touch()
    ...     [os.path.basename(path) for path in expand(folder, [".txt"])]
    ['part-9.txt', 'part-10.txt']
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Iterable) or isinstance(paths, (bytes, bytearray)):
        raise PlanError(
            "a source takes a path, a glob, a folder, or a sequence of them, and got "
            f"{type(paths).__name__}: {paths!r:.100}."
        )
    found: list[str] = []
    paths = list(paths)
    unasked = len(paths) > _MOST_ASKED
    for path in paths:
        if not isinstance(path, (str, os.PathLike)):
            raise PlanError(f"a path is a str or a Path, and got {type(path).__name__}: {path!r}.")
        found += _expand_one(os.fspath(path), endings, unasked)
    if not found:
        raise PlanError("a source needs at least one file, and the sequence of paths is empty.")
    return found


def _expand_one(path: str, endings: Sequence[str], unasked: bool) -> list[str]:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if is_remote(path):
        from bushel.files.backend import expand_remote

        return _in_order(expand_remote(path, endings, unasked))
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        return _in_folder(path, endings)
    if glob.has_magic(path) and not os.path.exists(path):
        files = [name for name in glob.glob(path, recursive=True) if os.path.isfile(name)]
        if not files:
            hint = " In a glob, `[[]` stands for a bracket." if "[" in path else ""
            raise MissingFileError(f"no file matches {path!r}.{hint}")
        return _in_order(files)
    if not os.path.exists(path):
        raise MissingFileError(f"there is no file {path!r}.{_similar(path)}")
    return [path]


def _in_folder(folder: str, endings: Sequence[str]) -> list[str]:
    entries = list(os.scandir(folder))
    names = [entry.path for entry in entries if entry.is_file()]
    hidden = [name for name in names if os.path.basename(name)[0] in "._"]
    files = [name for name in names if name not in hidden]
    matching = [name for name in files if ends_in(name, endings)]
    if not matching:
        wanted = f" that ends in {' or '.join(endings)}" if endings else ""
        there = f"; it has {len(files)} others" if files else "; it is empty"
        inner = sum(entry.is_dir() and entry.name[0] not in "._" for entry in entries)
        if inner and not files:
            there = (
                f"; it has {inner} folder{'s' if inner > 1 else ''}. Name the files in "
                f"{'them' if inner > 1 else 'it'} by a glob, as {os.path.join(folder, '**/*')!r}"
            )
        raise MissingFileError(f"the folder {folder!r} has no file{wanted}{there}.")
    return _in_order(matching)


def ends_in(name: str, endings: Sequence[str]) -> bool:
    """Whether a name has one of these endings; the number of a shard may follow.

    >>> ends_in("x.tfrecord-00000-of-00016", [".tfrecord"]), ends_in("x.txt", [".csv"])
    (True, False)
    """
    return not endings or _SHARD.sub("", name.lower()).endswith(tuple(endings))


def _in_order(files: Iterable[str]) -> list[str]:
    return sorted(files, key=natural)


def natural(path: str) -> list[tuple[int, int | str]]:
    """A sort key in which numbers in names count as numbers."""
    parts = re.split(r"(\d+)", path)
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]


def _similar(path: str) -> str:
    """Suggests names of neighbouring files that may be meant."""
    import difflib

    folder, name = os.path.split(path)
    try:
        others = os.listdir(folder or ".")
    except OSError:
        return f" Nor is there a folder {folder!r}." if folder else ""
    close = difflib.get_close_matches(name, others, n=3)
    return f" There is {', '.join(map(repr, close))}." if close else ""
