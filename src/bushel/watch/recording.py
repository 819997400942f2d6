"""Reads a recording of the flight recorder, up to where it was cut.

Nothing in the file is executed or trusted: each line is checked, and damaged lines are named and
skipped.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import MISSING, fields
from itertools import zip_longest
from typing import Any, cast

from bushel.checkpoint.signed import is_pipeline, sign
from bushel.core.frozen import frozen
from bushel.core.state import State
from bushel.errors import RecordError
from bushel.run.worker_figures import WorkerChange, WorkerFigures
from bushel.watch.recorder import VERSION
from bushel.watch.stats import Stats, StepStats

Entry = dict[str, Any]


@frozen
class Recording:
    """A recorded run."""

    path: str
    header: Entry
    # Steps and events, in the order of the file.
    entries: tuple[Entry, ...]
    # Damaged lines by number, counted from 1, with the reason.
    damaged: tuple[tuple[int, str], ...]
    # Whether the last line is incomplete, as the program or the disk ended there.
    cut: bool

    @property
    def pipeline(self) -> list[str]:
        """The description of the pipeline."""
        return list(self.header["pipeline"])

    @property
    def steps(self) -> list[Entry]:
        """The entries of steps, without events."""
        return [entry for entry in self.entries if "event" not in entry]

    def events(self, name: str) -> list[Entry]:
        """The events of a name."""
        return [entry for entry in self.entries if entry.get("event") == name]

    def runs(self) -> list[list[Entry]]:
        """The entries between two states that were set: their steps are in order."""
        found: list[list[Entry]] = [[]]
        for entry in self.entries:
            if entry.get("event") == "state set":
                found.append([])
            found[-1].append(entry)
        return [run for run in found if run]

    def step_ranges(self) -> list[tuple[int, int]]:
        """The steps that were made, as far as lines tell, as ranges without their ends.

        A run that went back to a state begins another range.
        """
        ranges = []
        runs = self.runs()
        for run, then in zip_longest(runs, runs[1:], fillvalue=()):
            # The line of a step is written after its delivery, other lines before it.
            stops = [entry["step"] + ("event" not in entry) for entry in run]
            # If another state was set then, that line has the last step of this run.
            stops += [entry["was"] for entry in then[:1] if type(entry.get("was")) is int]
            ranges.append((min(entry["step"] for entry in run), max(stops)))
        return ranges

    def beyond(self, step: int) -> str:
        """A note about a step that the run may not have made; empty for one that it made."""
        made = max(stop for _, stop in self.step_ranges()) if self.entries else 0
        if step < made:
            return ""
        if any(entry.get("event") in ("end", "closed") for entry in self.entries[-1:]):
            return f"the run ended before step {made:,}: step {step:,} was not part of it"
        return (
            f"the recording ends with step {made - 1:,}: it is not known whether the run made "
            f"step {step:,}"
        )

    def before(self, step: int) -> Entry:
        """The last entry with a state from which a step can be reached.

        If the run went back to a state, a step was made more than once: the last time counts.
        """
        runs = self.runs()
        for last, run in enumerate(reversed(runs)):
            reached = step <= max(entry["step"] for entry in run) or not last
            known = [one for one in run if one.get("state") is not None and one["step"] <= step]
            if reached and known:
                return max(known, key=lambda entry: entry["step"])
        firsts = [entry["step"] for entry in self.entries if entry.get("state") is not None]
        if not firsts:
            raise RecordError(f"{self.path!r} has no state that one could go on from.")
        raise RecordError(
            f"step {step:,} cannot be reached: the first state in {self.path!r} is from before "
            f"step {min(firsts):,}."
        )

    def checksum_at(self, step: int) -> str | None:
        """The checksum of a step, the last time that it was made; None if there is none."""
        found = [entry for entry in self.steps if entry["step"] == step]
        return found[-1]["crc"] if found else None

    def whole_state(self, state: State) -> Any:
        """The state as `get_state` returns it, or `state_dict` of a loader's iterator."""
        loader = self.header.get("loader")
        if loader is not None:
            return {**loader, "bushel": {**loader["bushel"], "state": state}}
        return sign(state, self.pipeline, self.header["made_with"])

    def stats(self) -> Stats | None:
        """The last recorded statistics; None if there are none."""
        for event in reversed(self.events("stats")):
            return _stats(event["stats"])
        return None


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Reads a recording up to its end, or to where it was cut."""
    name = os.fspath(path)
    with open(name, "rb") as file:
        lines = file.read().split(b"\n")
    # Each line ends with a newline, so nothing follows the last line of a complete file.
    cut = bool(lines[-1])
    return _recording(name, lines if cut else lines[:-1], cut)


def _recording(name: str, lines: list[bytes], cut: bool) -> Recording:
    if not lines:
        raise RecordError(f"{name!r} is empty: nothing was recorded.")
    header = _decoded(lines[0])
    if not isinstance(header, dict) or "bushel" not in header:
        if cut and len(lines) == 1 and b'{"bushel":'.startswith(lines[0][:10]):
            raise RecordError(f"{name!r} was cut within its first line: nothing was recorded.")
        raise RecordError(
            f"{name!r} is no recording, or its first line is damaged: recordings are written by "
            "`bushel.iterate(dataset, record=...)`."
        )
    if header["bushel"] != VERSION:
        raise RecordError(
            f"{name!r} is a recording of version {header['bushel']!r:.100}; this release of bushel "
            f"reads version {VERSION}."
        )
    problem = _problem_of_header(header)
    if problem is not None:
        raise RecordError(f"the first line of {name!r} is damaged: {problem}.")
    entries: list[Entry] = []
    damaged: list[tuple[int, str]] = []
    for number, line in enumerate(lines[1:], start=2):
        entry = _decoded(line)
        problem = "it is no JSON" if entry is None else _problem_of(entry)
        if problem is None:
            entries.append(entry)
            cut = cut and number < len(lines)
        elif not (cut and number == len(lines)):
            damaged.append((number, problem))
    return Recording(name, header, tuple(entries), tuple(damaged), cut and len(lines) > 1)


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _problem_of_header(header: Entry) -> str | None:
    if not is_pipeline(header.get("pipeline")):
        return "it does not name the pipeline"
    if not isinstance(header.get("made_with"), dict):
        return "it does not have the digests of code and files"
    loader = header.get("loader")
    if loader is not None and not (
        isinstance(loader, dict) and isinstance(loader.get("bushel"), dict)
    ):
        return "it does not describe the loader"
    return None


def _problem_of(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return "it is no object"
    wrong = [name for name, kind in _fields(entry) if not kind(entry.get(name))]
    return f"its {wrong[0]!r} is {entry.get(wrong[0])!r:.60}" if wrong else None


def _fields(entry: Entry) -> Iterator[tuple[str, Any]]:
    """The required fields of an entry, with functions that check them."""
    yield "step", _is_count
    if "state" in entry:
        yield "state", lambda state: state is None or isinstance(state, dict)
    if "event" in entry:
        yield "event", lambda event: isinstance(event, str)
        if "seconds" not in entry:
            return
    else:
        yield "state", lambda state: state is None or isinstance(state, dict)
        yield "crc", lambda crc: crc is None or isinstance(crc, str)
    yield "wait", _is_time
    yield "seconds", _is_time


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < float("inf")


def _stats(told: Any) -> Stats:
    """The statistics from `Stats.to_dict`."""
    try:
        steps = told["steps"]
        return Stats(
            steps=None if steps is None else tuple(_of(StepStats, step) for step in steps),
            threads=tuple(map(str, told["threads"])),
            workers=tuple(map(_workers, told["workers"])),
            **{
                name: _number(told[name])
                for name in _told_fields(Stats, told)
                if name not in ("steps", "threads", "workers")
            },
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"the statistics of a recording are damaged: {error!r}.") from None


def _workers(told: Any) -> WorkerFigures:
    # Older recordings have no changes of workers.
    changes = tuple(_of(WorkerChange, change) for change in told.get("changes", ()))
    return cast(WorkerFigures, _of(WorkerFigures, told, changes=changes))


def _of(kind: Any, told: Any, **others: Any) -> Any:
    return kind(
        **{
            name: str(told[name]) if wanted is str else _number(told[name])
            for name, wanted in _told_fields(kind, told).items()
            if name not in others
        },
        **others,
    )


def _told_fields(kind: Any, told: Any) -> dict[str, Any]:
    """The fields of a kind of figures, except those that older recordings lack."""
    defaults = {one.name for one in fields(kind) if one.default is not MISSING}
    wanted: dict[str, Any] = kind.__annotations__
    return {name: wanted[name] for name in wanted if name in told or name not in defaults}


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{value!r:.60} is no number")
    return value
