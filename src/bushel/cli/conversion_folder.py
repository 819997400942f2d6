"""The working folder of `bushel convert`, and what a killed conversion left in it."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bushel.errors import FileError
from bushel.files.private import make_private
from bushel.files.whole import lock_now, rename, sync_folder, written_whole


class ConversionFolder:
    """The folder in which a conversion works: one at a time."""

    def __init__(self, to: str, plan: dict[str, Any]) -> None:
        folder, name = os.path.split(os.path.abspath(to))
        if not os.path.isdir(folder):
            raise FileError(f"there is no folder {folder!r} to write {name!r} in.")
        self.folder = os.path.join(folder, f".{name}.bushel-convert")
        self._plan = plan

    def __enter__(self) -> "ConversionFolder":
        try:
            # What is in it will be removed, so it must be no link to anywhere else.
            make_private(self.folder, "Remove it, or convert to another path.")
        except FileError:
            raise
        except OSError as error:
            raise FileError(f"{self.folder!r} cannot be made: {error.strerror}.") from None
        self._lock = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        if not lock_now(self._lock):
            os.close(self._lock)
            raise FileError(f"another conversion is at work in {self.folder!r}.")
        if self._known_plan() != self._plan:
            self._clear(lambda name: True)
            self._write("plan.json", json.dumps(self._plan).encode())
        # What was being written when we were killed.
        self._clear(lambda name: name.startswith("."))
        return self

    def _clear(self, is_waste: Callable[[str], bool]) -> None:
        for name in filter(is_waste, os.listdir(self.folder)):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))

    @property
    def is_moving(self) -> bool:
        """Whether all shards were whole, and some of them may be where they belong."""
        return os.path.exists(os.path.join(self.folder, "moving"))

    def _known_plan(self) -> Any:
        try:
            with open(os.path.join(self.folder, "plan.json"), "rb") as file:
                return json.loads(file.read(1 << 26))
        except (OSError, ValueError):
            return None

    def _write(self, name: str, data: bytes) -> None:
        with written_whole(os.path.join(self.folder, name)) as file:
            file.write(data)

    def part(self, number: int) -> str:
        return os.path.join(self.folder, f"part-{number:05d}")

    def pending(self) -> list[int]:
        """The shards that are still to be written."""
        return [
            number
            for number in range(self._plan["shards"])
            if not os.path.exists(self.part(number))
        ]

    def finish(self, names: list[str]) -> None:
        """Moves all shards to where they belong."""
        self._write("moving", b"")
        for number, name in enumerate(names):
            if os.path.exists(self.part(number)):
                rename(self.part(number), name, lasting=False)  # What is in it lasts already.
        sync_folder(os.path.dirname(self.folder))
        shutil.rmtree(self.folder)

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            if len(self.pending()) == self._plan["shards"]:
                shutil.rmtree(self.folder)  # Nothing in it that would be of use later.
        with suppress(OSError):
            os.close(self._lock)
