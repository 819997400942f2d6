"""Folders that Energon (Megatron) prepared: tar files of samples, in named splits.

    shards/000.tar          samples, as WebDataset has them
    .nv-meta/.info.json     how many each has; .info.yaml before version 7
    .nv-meta/split.yaml     which are of "train", "val", "test", and what to leave out

Energon's own indexes (`000.tar.idx`, `index.sqlite`) are not read: bushel makes its own.
"""

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from bushel.errors import FileError, MissingFileError, MissingPackageError, PlanError
from bushel.files.local import open_file
from bushel.files.paths import is_remote
from bushel.sources.tar.source import TarDataSource

META = ".nv-meta"
_MOST_BYTES = 1 << 28
# The most names that a pattern may expand to.
_MOST_NAMES = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


class EnergonDataSource(TarDataSource):
    """The samples of one part of a folder that Energon prepared, in the order of its list.

    Samples are those of `TarDataSource`: a dict of `__key__` and the files of the sample, by the
    rest of their names. (Energon's `field_map` is a `map` that gives them other names.)

    Args:
        folder: The folder with `.nv-meta` in it, here or far away.
        split: Which part to read, of those that `split.yaml` lists.
        split_config: The name of the file in `.nv-meta` that lists them.
        decode: As for `TarDataSource`.
    """

    def __init__(
        self,
        folder: Any,
        *,
        split: str = "train",
        split_config: str = "split.yaml",
        decode: Any = False,
    ) -> None:
        if not isinstance(folder, (str, os.PathLike)):
            raise PlanError(
                f"`EnergonDataSource` takes the folder that has {META!r} in it, and got "
                f"{type(folder).__name__}: {folder!r:.100}."
            )
        root = os.fspath(folder)
        root = (root if is_remote(root) else os.path.expanduser(root)).rstrip("/")
        self._root, self._split = root, split
        names = _names_of_split(f"{root}/{META}/{split_config}", split)
        counts = _counts(root)
        super().__init__([f"{root}/{name}" for name in names], decode=decode)
        self._check_counts(names, counts)

    def _check_counts(self, names: list[str], counts: dict[str, Any]) -> None:
        """Compares the numbers of samples found with Energon's counts."""
        before = 0
        for name, end in zip(names, self._ends.tolist(), strict=True):
            counted, found = counts.get(name), end - before
            if counted is not None and counted != found:
                raise FileError(
                    f"{self._root}/{name} has {found:,} samples, and Energon counted {counted!r} "
                    f"when it prepared the folder. Prepare it again (`energon prepare`), or name "
                    'the files: `bushel.open("*.tar")`.'
                )
            before = end

    def __repr__(self) -> str:
        files = len(self._paths)
        return (
            f"EnergonDataSource({self._root!r}, {self._split!r}, {files:,} "
            f"file{'s' * (files != 1)}, {len(self):,} records)"
        )


def _names_of_split(path: str, split: str) -> list[str]:
    """The tar files of a part, in their order."""
    told = _read(path)
    parts = told.get("split_parts")
    if not isinstance(parts, dict) or not all(isinstance(some, list) for some in parts.values()):
        raise FileError(f"{path!r} has no lists of `split_parts`.")
    if split not in parts:
        raise PlanError(
            f"{path!r} has no part {split!r}; it has {', '.join(map(repr, parts))}. Say which by "
            "`split=`."
        )
    left_out = {name for some in told.get("exclude") or [] for name in _expanded(some, path)}
    names = [name for some in parts[split] for name in _expanded(some, path)]
    within = sorted(name for name in left_out if not name.endswith((".tar", ".tgz", ".tar.gz")))
    if within:
        raise FileError(
            f"{path!r} leaves out single samples ({within[0]!r:.100}), which bushel does not do "
            'by itself: name the files, `bushel.open("*.tar")`, and `filter` by "__key__".'
        )
    kept = [name for name in names if name not in left_out]
    if not kept:
        raise PlanError(f"the part {split!r} of {path!r} has no files.")
    return kept


def _counts(root: str) -> dict[str, Any]:
    """The number of samples in each file when the folder was prepared; empty if unknown."""
    for name in (".info.json", ".info.yaml"):
        try:
            told = _read(f"{root}/{META}/{name}")
        except MissingFileError:
            continue
        counts = told.get("shard_counts")
        return counts if isinstance(counts, dict) else {}
    return {}


def _read(path: str) -> dict[str, Any]:
    file = open_file(path)
    if file.size > _MOST_BYTES:
        raise FileError(f"{path!r} has {file.size:,} bytes, and is no list of files.")
    data = bytes(file.read(0, file.size))
    try:
        told = json.loads(data) if path.endswith(".json") else _yaml().safe_load(data)
    except Exception as error:  # Both parsers have their own errors.
        if isinstance(error, MissingPackageError):
            raise
        raise FileError(f"{path!r} cannot be read: {error}.") from None
    if not isinstance(told, dict):
        raise FileError(f"{path!r} is no list of files.")
    return told


def _expanded(pattern: Any, path: str) -> list[str]:
    """The names that a pattern with braces expands to, which have to be in the folder.

    >>> _expanded("{a,b}/{08..10}.tar", "split.yaml")[:4]
    ['a/08.tar', 'a/09.tar', 'a/10.tar', 'b/08.tar']
    """
    if not isinstance(pattern, str):
        raise FileError(f"{path!r} lists {pattern!r:.100}, which is no name of a file.")
    names: list[str] = []
    for name in _without_braces(pattern):
        parts = name.split("/")
        if "\\" in name or "\0" in name or not all(parts) or {".", ".."} & set(parts):
            raise FileError(
                f"{path!r} lists {name!r:.100}, which should be the name of a file in the folder."
            )
        names.append(name)
        if len(names) > _MOST_NAMES:
            raise FileError(f"{path!r} lists {pattern!r:.100}, which is too many files.")
    return names


def _without_braces(pattern: str) -> Iterator[str]:
    found = _BRACES.search(pattern)
    if found is None:
        yield pattern
        return
    numbers = _RANGE.fullmatch(found[1])
    choices: Any = found[1].split(",")
    if numbers is not None:
        width = len(numbers[1])
        choices = (f"{n:0{width}}" for n in range(int(numbers[1]), int(numbers[2]) + 1))
    for choice in choices:
        yield from _without_braces(pattern[: found.start()] + choice + pattern[found.end() :])


@cache
def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingPackageError("Energon's lists need the package PyYAML", "energon") from error
    return yaml
