"""Reads the figures on another process's page; accepts only values of the right types.

Another process has written them, and may have written anything: only values of the right types are
accepted, and no text reaches a terminal or a page without being cleaned.
"""

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from bushel.run.worker_figures import WorkerChange, WorkerFigures
from bushel.watch.plain_text import clipped, printable
from bushel.watch.stats import Stats, StepStats

T = TypeVar("T")

_MOST_INTEGER = 1 << 63
_MOST_ITEMS = 1000
_MOST_TEXT = 500
_PLACES = ("here", "workers", "waiting")


@dataclass(frozen=True, slots=True, repr=False)
class PublishedStats(Stats):
    """Statistics of another process, with its own sentences about them."""

    # For the number of cores that the other process may use.
    sentences: tuple[str, ...] = ()

    def why_slow(self) -> tuple[str, ...]:
        return self.sentences


@dataclass(frozen=True, slots=True)
class Recent:
    """The recent past."""

    seconds: float
    elements: int
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Published:
    """The content of a page."""

    # The process's own number, which differs in a container.
    pid: int
    iterator: int
    # By the monotonic clock of the machine.
    monotonic_seconds: float
    # Whether all elements were delivered.
    is_over: bool
    recent: Recent
    stats: PublishedStats
    # By the wall clock; 0 if unknown.
    unix_seconds: float = 0.0


def published_from(data: bytes) -> Published:
    """Reads the content of a page; raises ValueError if it is invalid."""
    try:
        values = json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("the figures are nested too deeply") from None
    page = _CheckedFigures(values)
    recent = _CheckedFigures(page.take("recent"))
    return Published(
        pid=page.integer("pid"),
        iterator=page.integer("iterator"),
        monotonic_seconds=page.real("monotonic_seconds"),
        is_over=page.flag("is_over"),
        recent=Recent(
            recent.real("seconds"), recent.integer("elements"), recent.real("wait_seconds")
        ),
        stats=_stats(_CheckedFigures(page.take("stats"))),
        unix_seconds=page.real("unix_seconds", 0.0),
    )


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no figure")


class _CheckedFigures:
    """Reads fields of a dict, with checks of their types."""

    def __init__(self, values: Any) -> None:
        if not isinstance(values, dict):
            raise ValueError(f"a {type(values).__name__} stands where figures should be")
        self._values = values

    def take(self, name: str, default: Any = None) -> Any:
        if name not in self._values and default is None:
            raise ValueError(f"there is no {name!r}")
        return self._values.get(name, default)

    def has(self, name: str) -> bool:
        """Whether the field exists, as older programs have fewer."""
        return name in self._values

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.take(name, default)
        if type(value) is not int or not -1 <= value < _MOST_INTEGER:
            raise ValueError(f"{name!r} is no number of things")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        value = self.take(name, default)
        if type(value) not in (int, float) or not -_MOST_INTEGER < value < _MOST_INTEGER:
            raise ValueError(f"{name!r} is no number")
        return float(value) if math.isfinite(value) else 0.0

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if type(value) is not bool:
            raise ValueError(f"{name!r} is neither true nor false")
        return value

    def list_of(self, name: str, make: Callable[[Any], T]) -> tuple[T, ...]:
        values = self.take(name)
        if not isinstance(values, list) or len(values) > _MOST_ITEMS:
            raise ValueError(f"{name!r} is no list of at most {_MOST_ITEMS:,}")
        return tuple(make(value) for value in values)

    def text(self, name: str) -> str:
        return _text(self.take(name))

    def made(self, kind: type[T], **others: Any) -> T:
        """An object made from plain fields, each checked by its type, and from `others`."""
        read: dict[Any, Callable[[str], Any]] = {
            int: self.integer,
            float: self.real,
            bool: self.flag,
            str: self.text,
        }
        # Fields that an older bushel does not write get their defaults.
        wanted = [
            one
            for one in fields(kind)  # type: ignore[arg-type]
            if one.name not in others and (one.name in self._values or one.default is MISSING)
        ]
        return kind(**{one.name: read[one.type](one.name) for one in wanted}, **others)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} stands where a text should be")
    return clipped(printable(value[:_MOST_TEXT]), _MOST_TEXT)


def _stats(values: _CheckedFigures) -> PublishedStats:
    return PublishedStats(
        elements=values.integer("elements"),
        elapsed_seconds=values.real("elapsed_seconds"),
        wait_seconds=values.real("wait_seconds"),
        ready_share=values.real("ready_share"),
        longest_wait_seconds=values.real("longest_wait_seconds"),
        longest_wait_at=values.integer("longest_wait_at"),
        steps=values.list_of("steps", lambda step: _step(_CheckedFigures(step))),
        threads=values.list_of("threads", _text),
        workers=values.list_of("workers", lambda workers: _workers(_CheckedFigures(workers))),
        sentences=values.list_of("why_slow", _text),
        ready_blocks=values.integer("ready_blocks", 0),
        bad_records=values.integer("bad_records", 0),
        parts_together=values.integer("parts_together", 0),
        first_wait_seconds=values.real("first_wait_seconds", 0.0),
    )


def _step(values: _CheckedFigures) -> StepStats:
    made = values.made(StepStats)
    if made.place not in _PLACES:
        raise ValueError(f"no step runs in {made.place!r}")
    return made


def _workers(values: _CheckedFigures) -> WorkerFigures:
    changes: tuple[WorkerChange, ...] = ()
    if values.has("changes"):
        changes = values.list_of("changes", lambda one: _CheckedFigures(one).made(WorkerChange))
    return values.made(WorkerFigures, changes=changes)
