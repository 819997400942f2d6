"""The manifest of a written dataset: its shards, and the pipeline that made them.

    out/train-00000-of-00002.parquet   the shards
    out/train-00001-of-00002.parquet
    out/train.manifest.json            the manifest, there when all shards are
    out/train.origins/00000            where the records of a shard came from
    out/.train.bushel/                 plan, notes and lock, while shards are being written

A manifest may come from other people: it is checked before it is trusted, and names only files of
its own folder.
"""

import glob
import hashlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from bushel.core.frozen import frozen
from bushel.errors import FileError, MissingFileError, PlanError
from bushel.files.local import open_file
from bushel.files.paths import expand, is_remote
from bushel.sources.written.element_layout import ElementLayout

VERSION = 1
ENDING = "manifest.json"
# More than any manifest has: one of a million shards has 300 MB.
_MOST_BYTES = 1 << 30
# The most names in an error message.
_SHOWN = 5
_DIGEST = re.compile(r"[0-9a-f]{64}")
# A name that is not a path to elsewhere.
_PLAIN_NAME = re.compile(r"[^/\\\0]+(/[^/\\\0]+)?")


@frozen
class Part:
    """A file of a dataset: its name in the folder, its size, and the digest of its bytes."""

    name: str
    bytes: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "bytes": self.bytes, "sha256": self.sha256}


@frozen
class WrittenShard:
    """One shard, as it was written."""

    file: Part
    # The file with the origins of its records, or with their beginnings.
    index: Part | None
    records: int
    # Positions of the dataset from which it was made; None for a stream.
    positions: tuple[int, int] | None
    # The number of bad records, for each `on_error` of the pipeline.
    bad: tuple[int, ...]
    # The state of the stream after it, while a stream is being written.
    state: Any = None

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"file": self.file.to_json(), "records": self.records}
        if self.index is not None:
            told["index"] = self.index.to_json()
        if self.positions is not None:
            told["positions"] = list(self.positions)
        if any(self.bad):
            told["bad"] = list(self.bad)
        return told


@frozen
class Manifest:
    """A written dataset: shards, the pipeline that made them, and its sources."""

    # Its path, and the folder of its files.
    path: str
    # The name of a shard, with a `*` for its number.
    pattern: str
    format: str
    # None if there are no elements.
    layout: ElementLayout | None
    shards: tuple[WrittenShard, ...]
    # The steps, the digests of functions and the stamps of files, the sources: plain values.
    pipeline: tuple[str, ...]
    made_with: dict[str, Any]
    sources: tuple[dict[str, Any], ...]
    # The digest of everything that the bytes of the shards depend on.
    digest: str
    # The reason if the origins of records are unknown.
    no_origins: str | None

    @property
    def folder(self) -> str:
        """The folder of its files."""
        return self.path.rpartition("/")[0] or ("/" if self.path.startswith("/") else ".")

    @property
    def records(self) -> int:
        """How many records there are."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """How many bytes the shards have."""
        return sum(shard.file.bytes for shard in self.shards)

    @property
    def bad(self) -> int:
        """The number of bad records."""
        return sum(sum(shard.bad) for shard in self.shards)

    @property
    def paths(self) -> list[str]:
        """The shards, in order."""
        return [self.path_of(shard.file) for shard in self.shards]

    def path_of(self, part: Part) -> str:
        """Where a file of the dataset is."""
        return f"{self.folder}/{part.name}" if self.folder != "." else part.name

    def __str__(self) -> str:
        count = len(self.shards)
        bad = f", {self.bad:,} bad ones passed over" if self.bad else ""
        return (
            f"{self.records:,} records in {count:,} shard{'s' * (count != 1)} of "
            f"{self.path_of(Part(self.pattern, 0, ''))!r}, {self.bytes:,} bytes{bad}"
        )

    def __repr__(self) -> str:
        return f"<{self}>"

    def to_json(self) -> dict[str, Any]:
        """The manifest as plain values."""
        return {
            "bushel": "manifest",
            "version": VERSION,
            "digest": self.digest,
            "pattern": self.pattern,
            "format": self.format,
            "records": self.records,
            "layout": None if self.layout is None else self.layout.to_json(),
            "pipeline": list(self.pipeline),
            "made_with": self.made_with,
            "sources": list(self.sources),
            "no_origins": self.no_origins,
            "shards": [shard.to_json() for shard in self.shards],
        }


def stem_of(pattern: str) -> str:
    """The prefix of a dataset's other files, given the pattern of its shards.

    >>> stem_of("train-*.parquet"), stem_of("*.tar"), stem_of("one.arrow")
    ('train.', '', 'one.')
    """
    before = pattern.partition("*")[0] if "*" in pattern else os.path.splitext(pattern)[0]
    before = before.rstrip("-_. ")
    return f"{before}." if before else ""


def manifest_name(pattern: str) -> str:
    """The name of the manifest.

    >>> manifest_name("train-*.parquet"), manifest_name("*.tar")
    ('train.manifest.json', 'manifest.json')
    """
    return stem_of(pattern) + ENDING


def find_manifest(paths: Any) -> str | None:
    """The path of the manifest for a folder, a pattern or a path; None without one."""
    if not isinstance(paths, (str, os.PathLike)):
        return None
    path = os.fspath(paths)
    if not isinstance(path, str) or "**" in path:
        return None
    if not is_remote(path):
        path = os.path.expanduser(path)
        if os.path.isdir(path):
            found = sorted(
                name for name in os.listdir(path) if name == ENDING or name.endswith("." + ENDING)
            )
            unfinished = [name for name in os.listdir(path) if _WORK.fullmatch(name)]
            if not found and unfinished:
                _refuse_unfinished(path, unfinished[0])
            return _the_one(path, [os.path.join(path, name) for name in found])
    elif _looks_like_folder(path):
        try:
            found = expand(f"{path.rstrip('/')}/*{ENDING}")
        except FileError:
            return None
        return _the_one(path, [name for name in found if _is_manifest(name)])
    folder, slash, name = path.rpartition("/")
    if _is_manifest(path):
        return path if _exists(path) else None
    if name.count("*") != 1 or glob.has_magic(folder) or any(x in name for x in "?["):
        return None
    beside = folder + slash + manifest_name(name)
    if _exists(beside):
        return beside
    if not is_remote(path) and os.path.isdir(os.path.join(folder, work_name(name))):
        _refuse_unfinished(folder or ".", work_name(name))
    return None


_WORK = re.compile(r"\.(.*\.)?bushel")


def work_name(pattern: str) -> str:
    """The name of the folder in which shards are made.

    >>> work_name("train-*.parquet"), work_name("*.tar")
    ('.train.bushel', '.bushel')
    """
    return f".{stem_of(pattern)}bushel"


def _refuse_unfinished(folder: str, work: str) -> None:
    if os.path.isdir(os.path.join(folder, work)):
        raise FileError(
            f"{folder!r} is being written, or was left unfinished: it has no manifest yet, and "
            f"{work!r} in it. Write it again with the same pipeline, which goes on where it was; "
            "or name the shards that are there and their format, `format=`, to read these."
        )


def _looks_like_folder(path: str) -> bool:
    last = path.rstrip("/").rpartition("/")[2]
    return "." not in last and "*" not in path and "?" not in path


def _is_manifest(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name == ENDING or name.endswith("." + ENDING)


def _exists(path: str) -> bool:
    if not is_remote(path):
        return os.path.isfile(path)
    try:
        open_file(path)
    except FileError:
        return False
    return True


def _the_one(folder: str, found: list[str]) -> str | None:
    if len(found) > 1:
        names = ", ".join(repr(path.rpartition("/")[2]) for path in found[:_SHOWN])
        if len(found) > _SHOWN:
            names += f" and {len(found) - _SHOWN:,} more"
        raise PlanError(
            f"{folder!r} has several datasets in it: {names}. Name one of these, or the pattern of "
            "its shards."
        )
    return found[0] if found else None


def read_manifest(path: str) -> Manifest:
    """Reads a manifest, and checks all values in it."""
    try:
        file = open_file(path)
        if file.size > _MOST_BYTES:
            raise FileError(f"{path!r} has {file.size:,} bytes, and is no manifest.")
        told = json.loads(bytes(file.read(0, file.size)))
    except MissingFileError:
        raise MissingFileError(f"there is no manifest {path!r}.") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileError):
            raise
        raise _damaged(path, f"it is no JSON: {error}") from None
    return manifest_from(told, path)


def manifest_from(told: Any, path: str) -> Manifest:
    """A manifest from plain values, which may be anything."""
    if not isinstance(told, dict) or told.get("bushel") != "manifest":
        raise _damaged(path, "it does not say that it is one of bushel's")
    if told.get("version") != VERSION:
        raise FileError(
            f"the manifest {path!r} has version {told.get('version')!r:.50}; this release of "
            f"bushel reads version {VERSION}."
        )
    try:
        layout = told["layout"]
        manifest = Manifest(
            path,
            _name(told["pattern"]),
            _text(told["format"]),
            None if layout is None else ElementLayout.from_json(layout, f"the manifest {path!r}"),
            tuple(shard_from(shard) for shard in told["shards"]),
            tuple(map(_text, told["pipeline"])),
            _dict(told["made_with"]),
            tuple(map(_dict, told["sources"])),
            _digest(told["digest"]),
            None if told["no_origins"] is None else _text(told["no_origins"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        problem = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise _damaged(path, problem) from None
    if manifest.records != told.get("records"):
        raise _damaged(path, f"its shards have {manifest.records} records in all")
    names = [shard.file.name for shard in manifest.shards]
    if len(set(names)) < len(names):
        raise _damaged(path, "it names a shard twice")
    if layout is None and manifest.records:
        raise _damaged(path, "it does not say what its records are made of")
    return manifest


def shard_from(told: Any) -> WrittenShard:
    """The note about a shard, from plain values; raises a ValueError if they are invalid."""
    told = _dict(told)
    index = told.get("index")
    positions = told.get("positions")
    if positions is not None:
        start, stop = map(_count, positions)
        if stop < start:
            raise ValueError(f"positions from {start} to {stop}")
        positions = (start, stop)
    return WrittenShard(
        _part(told["file"]),
        None if index is None else _part(index),
        _count(told["records"]),
        positions,
        tuple(map(_count, told.get("bad", ()))),
        told.get("state"),
    )


def _part(told: Any) -> Part:
    told = _dict(told)
    return Part(_name(told["name"]), _count(told["bytes"]), _digest(told["sha256"]))


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.100} should be an object")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.100} should be text")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r:.100} should be a count")
    return value


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError(f"{value!r:.100} should be a SHA-256")
    return value


def _name(value: Any) -> str:
    """A name of a file in the folder, or in a folder of it, but nowhere else."""
    name = _text(value)
    if not _PLAIN_NAME.fullmatch(name) or ".." in name.split("/") or "." in name.split("/"):
        raise ValueError(f"{value!r:.100} should be the name of a file in the same folder")
    return name


def _damaged(path: str, problem: str) -> FileError:
    return FileError(
        f"{path!r} is no manifest, or a damaged one: {problem}. Copy it anew; or name the shards "
        "and their format, `format=`, to read them without it."
    )


def digest_of_plan(plan: Mapping[str, Any]) -> str:
    """The digest of plain values."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
