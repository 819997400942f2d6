"""Functions that workers run: this module imports little."""

import os
import signal
from typing import Any

import numpy as np


def record(number: int) -> dict[str, Any]:
    """An element with a field of most kinds."""
    return {
        "id": number,
        "tokens": np.arange(number % 7, dtype=np.int32),
        "text": f"number {number}",
        "image": np.full((2, 3), number % 256, np.uint8),
        "share": number / 3,
        "data": bytes([number % 256]) * 3,
    }


def odd(element: dict[str, Any]) -> bool:
    return bool(element["id"] % 2)


def fails_at_57(number: int) -> dict[str, Any]:
    if number == 57:
        raise ValueError("no such thing as 57")
    return record(number)


class DiesOnce:
    """Kills its process at one element, if that is the first to come to it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, number: int) -> dict[str, Any]:
        if number == 42:
            try:
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return record(number)
