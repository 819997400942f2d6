"""Functions that note where they run. Workers import this file, so it imports little itself."""

import os
import threading
from typing import Any


class Noting:
    """Calls a function, and notes in a file the process and the thread in which it did."""

    def __init__(self, function: Any, number: int, path: str) -> None:
        self._function, self.number, self._path = function, number, path

    def __call__(self, *args: Any) -> Any:
        self._note()
        return self._function(*args)

    def _note(self) -> None:
        with open(self._path, "a") as file:
            file.write(f"{self.number} {os.getpid()} {threading.current_thread().name}\n")


class NotingSource(Noting):
    """The same for a source."""

    def __len__(self) -> int:
        return len(self._function)

    def __getitem__(self, key: int) -> Any:
        self._note()
        return self._function[key]


class Untouchable:
    """A source that may be asked for nothing, once it is `armed`."""

    armed = False

    def __len__(self) -> int:
        if self.armed:
            raise AssertionError("asked for its length")
        return 1000

    def __getitem__(self, key: int) -> Any:
        raise AssertionError("read")

    def __getitems__(self, keys: Any) -> Any:
        raise AssertionError("read")

    def __getattr__(self, name: str) -> Any:
        if self.armed:
            raise AssertionError(f"asked for {name}")
        raise AttributeError(name)

    def __repr__(self) -> str:
        raise AssertionError("shown")


class Unread:
    """A source that knows its length, and cannot be read."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, key: int) -> Any:
        raise AssertionError("read")
