"""The plan of `write`: all that determines the bytes of shards; how two plans differ."""

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from bushel.checkpoint.code_and_files import changes_since
from bushel.checkpoint.differences import differing_steps
from bushel.errors import FileError
from bushel.sources.written.coding import Coding, coding_of
from bushel.sources.written.element_layout import ElementLayout
from bushel.sources.written.manifest import digest_of_plan
from bushel.sources.written.shard_names import shard_name

VERSION = 1


class WritePlan:
    """The plan of a dataset: plain values, in a file beside the shards while they are made."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        self.pattern: str = told["pattern"]
        self.format: str = told["format"]
        # The number of positions, and of shards; None for a stream.
        self.length: int | None = told["length"]
        self.shards: int | None = told["shards"]

    @cached_property
    def digest(self) -> str:
        """The digest that distinguishes shards and notes of different plans."""
        return digest_of_plan(self.told)

    @cached_property
    def layout(self) -> ElementLayout:
        """The structure of elements."""
        return ElementLayout.from_json(self.told["layout"], "the plan")

    @cached_property
    def coding(self) -> Coding:
        """How elements become records."""
        return coding_of(self.format, self.layout)

    def name(self, number: int) -> str:
        """The name of a shard."""
        return shard_name(self.pattern, number, self.shards)

    def bounds(self, number: int) -> tuple[int, int]:
        """The positions of a shard."""
        assert self.length is not None and self.shards is not None
        size = self.told["shard_records"]
        if size is not None:
            return min(number * size, self.length), min((number + 1) * size, self.length)
        return self.length * number // self.shards, self.length * (number + 1) // self.shards

    def __getstate__(self) -> dict[str, Any]:
        return {"told": self.told}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["told"])  # type: ignore[misc]

    def to_bytes(self) -> bytes:
        """The plan in the form of its file."""
        return json.dumps({"version": VERSION, **self.told}).encode()


def read_plan(data: bytes) -> WritePlan | None:
    """The plan in a file; None if that has another version, or is damaged."""
    try:
        told = json.loads(data)
        if not isinstance(told, dict) or told.pop("version", None) != VERSION:
            return None
        plan = WritePlan(told)
        if told["layout"] is not None:
            _ = plan.layout
        list(differences(told, told))
        return plan
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, FileError):
        return None


# Fields that are compared as they are, and their names in messages.
COMPARED = {
    "pattern": "the name of the shards",
    "format": "the format",
    "length": "the number of elements",
    "on_error": "`on_error`",
    "origins": "`origins`",
    "json_fields": "`json_fields`",
}


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Lists the differences of two plans; the number of shards only if the user set it."""
    if before["pipeline"] != now["pipeline"]:
        yield differing_steps(list(before["pipeline"]), list(now["pipeline"]))
    yield from changes_since(before["made_with"], now["made_with"])
    for name, words in COMPARED.items():
        if before[name] != now[name]:
            yield f"{words} was {before[name]!r} and is {now[name]!r} now"
    for name in ("shards", "shard_records"):
        if now[name] is not None and before[name] != now[name]:
            yield f"`{name}` was {before[name]} and is {now[name]} now"
