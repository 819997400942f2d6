"""Keeps the latest of several numbered folders, each written atomically, such as checkpoints."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# The suffixes of a folder that is being written, and of one that is being removed.
_NEW, _OLD = ".new", ".old"


class LatestFolder:
    """Keeps one of the numbered folders with the same prefix: the latest.

    A new folder gets its name before the previous one loses its own, and then its content. A
    process that is killed in between leaves both, of which the one whose name sorts last counts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = LatestFolder(Path(folder), "checkpoint-")
    ...     for name in ("checkpoint-1", "checkpoint-2", "checkpoint-2"):
    ...         with kept.written(name) as new:
    ...             _ = (new / "weights").write_bytes(b"...")
    ...         print(kept.find().name, len(list(Path(folder).iterdir())))
    checkpoint-1 1
    checkpoint-2 1
    checkpoint-2-000001 1
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        self._parent, self._prefix = parent, prefix

    def find(self) -> Path | None:
        """The latest folder; None if there is none yet."""
        return max(self._parent.glob(f"{self._prefix}*[0-9]"), default=None)

    @contextmanager
    def written(self, name: str) -> Iterator[Path]:
        """A folder to write into, which gets its name when the block ends.

        If there is one of that name, the new one is numbered: a folder cannot replace another that
        is not empty, and removing that first would be too early.
        """
        self._parent.mkdir(parents=True, exist_ok=True)
        older = [*self._parent.glob(f"{self._prefix}*")]
        new = self._parent / f"{name}{_NEW}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        yield new
        new.rename(self._parent / self._free(name))
        for path in sorted(older, key=_is_named):  # Remains of others are in the way.
            _remove(path)

    def _free(self, name: str) -> str:
        """That name, or one that sorts after those of its namesakes."""
        namesakes = self._parent.glob(f"{name}-{'[0-9]' * 6}")
        numbers = [int(path.name[-6:]) for path in namesakes]
        if not numbers and not (self._parent / name).exists():
            return name
        return f"{name}-{1 + max(numbers, default=0):06}"


def _is_named(path: Path) -> bool:
    return path.suffix not in (_NEW, _OLD)


def _remove(path: Path) -> None:
    """Removes a folder: it loses its name before any of its content."""
    with suppress(OSError):
        if _is_named(path):
            path = path.rename(path.with_name(f"{path.name}{_OLD}"))
        shutil.rmtree(path, ignore_errors=True)
