"""Expands names, globs and folders on remote file systems."""

import glob
from collections.abc import Sequence
from typing import Any

from bushel.errors import MissingFileError
from bushel.files import stores
from bushel.files.paths import ends_in
from bushel.files.retry import insist
from bushel.files.systems import system_of

_WEB = ("http://", "https://")


def listed(path: str, endings: Sequence[str]) -> list[str]:
    """Lists the files that a remote name, glob or folder stands for."""
    if has_magic(path):
        return _in_glob(path)
    if path.startswith(_WEB):
        folder = path.endswith("/")
    else:
        system, inner = _system_of(path)
        folder = insist(lambda: system.info(inner), path, "the size")["type"] == "directory"
    return _in_folder(path, endings) if folder else [path]


def _system_of(path: str) -> tuple[Any, str]:
    # Only fsspec treats web pages as folders.
    in_store = stores.serves(path) and not path.startswith(_WEB)
    system, inner = stores.system_of(path) if in_store else system_of(path)
    system.invalidate_cache()
    return system, inner


def _in_glob(path: str) -> list[str]:
    system, inner = _system_of(path)
    found = insist(lambda: _listed(system.glob, inner), path, "the list of files")
    files = [name for name, info in dict(found).items() if info["type"] == "file"]
    if not files:
        raise MissingFileError(f"no file matches {path!r}.{_about_lists(path)}")
    before = _lost(path, inner)
    return [before + name.lstrip("/") for name in files]


def _in_folder(path: str, endings: Sequence[str]) -> list[str]:
    system, inner = _system_of(path)
    folder = inner.rstrip("/") + "/"
    listed = insist(lambda: _listed(system.ls, inner), path, "the list of files")
    names = [info["name"] for info in listed if info["type"] == "file"]
    names = [name for name in names if name.startswith(folder)]
    files = [name for name in names if _is_meant(name.removeprefix(folder))]
    matching = [name for name in files if ends_in(name, endings)]
    if not matching:
        wanted = f" that ends in {' or '.join(endings)}" if endings else ""
        there = f"; it has {len(files)} others" if files else "; it is empty"
        raise MissingFileError(
            f"the folder {path!r} has no file{wanted}{there}.{_about_lists(path)}"
        )
    before = _lost(path, inner)
    return [before + name.lstrip("/") for name in matching]


def _listed(listing: Any, inner: str) -> Any:
    try:
        return listing(inner, detail=True)
    except FileNotFoundError as error:
        if error.__cause__ is not None:
            raise
        return []


def _is_meant(name: str) -> bool:
    """Whether a name within a folder is that of a file of records."""
    return bool(name) and name[0] not in "._" and "/" not in name and "?" not in name


def _lost(path: str, inner: str) -> str:
    """The prefix that a file system strips from paths, to be restored in the names that it returns.

    >>> _lost("s3://bucket/a", "bucket/a"), _lost("sftp://host/a", "/a")
    ('s3://', 'sftp://host/')
    """
    whole, kept = path.rstrip("/"), inner.strip("/")
    return whole.removesuffix(kept) if whole.endswith(kept) else path.partition("://")[0] + "://"


def _about_lists(path: str) -> str:
    if not path.startswith(_WEB):
        return ""
    return " A server of the web lists files only on pages with links to them; name the files."


def has_magic(path: str) -> bool:
    """Whether a path is a glob; in an address of the web, a question mark is none.

    >>> has_magic("s3://bucket/part-?.tar"), has_magic("https://host/part?n=1")
    (True, False)
    """
    if path.startswith(_WEB):
        return "*" in path
    return glob.has_magic(path)
