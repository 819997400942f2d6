"""Which ArrayRecord files a path or a file instruction means, and which of their records."""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from bushel.errors import MissingFileError, PlanError
from bushel.files.paths import expand, is_remote
from bushel.sources.endings import ARRAY_RECORD

# Files that the package of ArrayRecord reads itself.
OF_THE_PACKAGE = ("gs://",)
_SHARDS = re.compile(r"-\d{5,}-of-\d{5,}")


@runtime_checkable
class FileInstruction(Protocol):
    """Some of the records of a file, as TFDS says it: `take` records after the first `skip`."""

    @property
    def filename(self) -> str | os.PathLike[str]: ...

    @property
    def skip(self) -> int: ...

    @property
    def take(self) -> int: ...

    @property
    def examples_in_shard(self) -> int: ...


class FilePart(NamedTuple):
    """Records of one file: those after the first `skip`; None for all of them."""

    file: str
    skip: int
    take: int | None


def parts_of(paths: Any) -> Iterator[FilePart]:
    """The files of paths, and the range of records in each, in order."""
    if isinstance(paths, (str, os.PathLike, FileInstruction)):
        paths = [paths]
    if not isinstance(paths, Sequence) or isinstance(paths, (bytes, bytearray)):
        raise PlanError(
            "paths are a file, a folder, a glob or a sequence of them, and got "
            f"{type(paths).__name__}: {paths!r:.100}."
        )
    if not paths:
        raise PlanError("a source needs at least one file, and the sequence of paths is empty.")
    for path in paths:
        if isinstance(path, (str, os.PathLike)):
            text = os.fsdecode(path)
            if part := re.fullmatch(r"(.*)\[(\d+):(\d+)\]", text):
                start, stop = int(part[2]), int(part[3])
                yield FilePart(part[1], start, max(0, stop - start))
            else:
                yield from (FilePart(file, 0, None) for file in _files(text))
        elif isinstance(path, FileInstruction):
            yield _instructed(path)
        else:
            raise PlanError(
                "a path is a string, a pathlib.Path, or an object with filename, skip, take and "
                f"examples_in_shard, and got {type(path).__name__}: {path!r:.100}."
            )


def _instructed(path: FileInstruction) -> FilePart:
    if path.skip < 0 or path.take < 0:
        raise PlanError(f"skip and take are numbers of records, and cannot be negative: {path!r}.")
    return FilePart(os.fsdecode(path.filename), path.skip, path.take)


def _files(path: str) -> Iterable[str]:
    """The files of a path, sorted by name."""
    if os.path.isdir(path):
        return _files_in(path)
    if is_remote(path) and not path.startswith(OF_THE_PACKAGE):
        return expand(path, ARRAY_RECORD)
    if is_remote(path) or not glob.has_magic(path) or os.path.exists(path):
        return [path]
    found = sorted(filter(os.path.isfile, glob.iglob(path, recursive=True)))
    if not found:
        raise MissingFileError(
            f"no file matches {path!r}. (Relative paths start from {os.getcwd()!r}.)"
        )
    return found


def _files_in(folder: str) -> list[str]:
    names = sorted(os.listdir(folder))
    chosen = [name for name in names if re.search("array_?record", name)]
    if not chosen:
        raise MissingFileError(
            f"the folder {folder!r} has no file with `array_record` in its name, only "
            f"{', '.join(names[:5]) or 'nothing'}. Name the files by a glob, as "
            f"{os.path.join(folder, '*')!r}."
        )
    # Of a folder with a training and a test set, reading both is a mistake.
    sets = sorted({_SHARDS.split(name)[0] for name in chosen if _SHARDS.search(name)})
    if len(sets) > 1:
        raise PlanError(
            f"the folder {folder!r} has the files of {len(sets)} sets: {', '.join(sets[:5])}. "
            f"Name one by a glob, as {os.path.join(folder, sets[0] + '*')!r}."
        )
    return [os.path.join(folder, name) for name in chosen]
