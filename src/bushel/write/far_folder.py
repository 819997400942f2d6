"""The target folder in an object store: objects are written atomically.

Nobody is locked out: who writes the same dataset twice at once writes the same bytes, and who
writes another one finds the plan of the first.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bushel.files import uploads
from bushel.write.target_folder import Folder, scratch


class FarFolder(Folder):
    """A folder in an object store. Files are written here first, and then put there."""

    def __init__(self, folder: str, pattern: str) -> None:
        super().__init__(folder, pattern)
        uploads.check_writable(self.path(pattern))

    @contextmanager
    def alone(self) -> Iterator[None]:
        yield

    @contextmanager
    def private(self, name: str) -> Iterator[str]:
        with scratch(name) as folder:
            yield os.path.join(folder, os.path.basename(name))

    @contextmanager
    def lasting(self, private: str) -> Iterator[None]:
        yield  # The file of this machine is gone soon.

    def publish(self, private: str, name: str) -> None:
        uploads.put(self.path(name), Path(private))

    def put(self, name: str, data: bytes) -> None:
        uploads.put(self.path(name), data)

    def get(self, name: str) -> bytes | None:
        return uploads.get(self.path(name))

    def sizes(self, inside: str = "") -> dict[str, int]:
        return uploads.listed(self.path(inside) if inside else self.folder)

    def remove(self, names: list[str]) -> None:
        uploads.remove(self.folder, names)

    def remove_folder(self, name: str) -> None:
        uploads.remove(self.folder, [f"{name}/{file}" for file in self.sizes(name)])
