"""Functions that workers find in a module that imports little."""

from typing import Any


def fails_on_seven(record: dict[str, Any]) -> dict[str, Any]:
    if record["id"] == 7:
        raise ValueError("seven")
    return record


def kept(record: dict[str, Any]) -> bool:
    return bool(record["id"] % 3)
