"""The target folder in an object store: objects are written atomically.

No process is locked out: two that write the same dataset at once write the same bytes, and one that
writes another dataset finds the plan of the first.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bushel.files import uploads
from bushel.write.target_folder import Folder, scratch


class FarFolder(Folder):
    """A folder in an object store. Files are written locally first, and then uploaded."""

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
        yield  # The local file is removed soon.

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
