"""What a job is, and an entry: one system's way to do it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from benchmarks.jobs.streaming_import import import_streaming
from benchmarks.workload import parse_no_flags

# Gives batches for ever, as dicts of arrays.
Make = Callable[[Path], Iterable[Any]]


class Resumable(Protocol):
    """A stream that says where it is, in words that outlive the process."""

    def __iter__(self) -> Iterator[Any]: ...

    def state(self) -> Any:
        """Returns what `Entry.resume` continues from, after the batch that was given last."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One system in one job: what it is called, what it imports, reads and runs.

    `package` names what it imports, with blanks between several; `prepared` names functions of
    `convert.py`, which write the data in the system's own format once. `resume` opens the stream
    at its beginning (None) or where a state says.
    """

    name: str
    package: str | None
    make: Make
    prepared: tuple[str, ...] = ()
    resume: Callable[[Path, Any], Resumable] | None = None

    def bring(self) -> None:
        """Imports the libraries, which a program has done before it opens its data."""
        for package in self.packages:
            if package == "streaming":
                import_streaming()
            else:
                import_module(package)
            if package == "grain":
                parse_no_flags()

    @property
    def packages(self) -> list[str]:
        return (self.package or "").split()

    @property
    def installed(self) -> bool:
        return all(find_spec(package.partition(".")[0]) for package in self.packages)


@dataclass(frozen=True, slots=True)
class Job:
    """Work from files to batches; the first of the entries is the work by hand on two cores.

    `check` takes a few batches of an entry and says what is wrong with them, or None.
    """

    name: str
    title: str
    unit: str
    units_in: Callable[[Any], int]
    check: Callable[[Path, list[Any]], str | None]
    checked_batches: int
    prepared: tuple[str, ...]
    entries: tuple[Entry, ...]

    def entry(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.name == name)


def for_ever(loader: Iterable[Any]) -> Iterator[Any]:
    """Begins again where an epoch ends."""
    while True:
        yield from loader
