"""Finds programs that publish figures, for `bushel top` and `serve`; the error if there are none.

The processes are not asked: their open files are examined. So it does not matter whether they
respond.
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bushel.deliver.live_page import NAME, own_pages, read_page
from bushel.watch.durations import duration, percent
from bushel.watch.html import piece
from bushel.watch.plain_text import clipped, number, plural, printable
from bushel.watch.published import Published, published_from

# Older figures are shown with their age.
_OLD_SECONDS = 3.0
_LINK = f"/memfd:{NAME}"
_NO_PROC = (
    "the figures of other programs are found in /proc, which this system does not have: print "
    "`iterator.stats()` in the program itself."
)
_HOW = "Iterate with `bushel.iterate(dataset)` in it, from then on its figures can be looked at."


@dataclass(frozen=True, slots=True)
class LiveIterator:
    """An iterator of a program that runs."""

    published: Published
    # Seconds since the figures were published.
    age_seconds: float
    # The state of the process, if it explains the age: stopped, or ended.
    is_stopped: bool
    has_ended: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON takes."""
        recent = self.published.recent
        return {
            "iterator": self.published.iterator,
            "age_seconds": self.age_seconds,
            "is_over": self.published.is_over,
            "is_stopped": self.is_stopped,
            "has_ended": self.has_ended,
            "recent": {
                "seconds": recent.seconds,
                "elements": recent.elements,
                "wait_seconds": recent.wait_seconds,
            },
            "stats": self.published.stats.to_dict(),
        }

    def __str__(self) -> str:
        lines = [f"iterator {self.published.iterator}, {self._age()}", *self._recent()]
        return "\n".join([*lines, str(self.published.stats)])

    def _repr_html_(self) -> str:
        remarks = [(f"iterator {self.published.iterator}", self._age())]
        remarks += [("now", text) for text in self._recent()]
        return piece(remarks) + self.published.stats._repr_html_()

    def _age(self) -> str:
        age = duration(self.age_seconds)
        if self.published.is_over:
            return f"at its end since {age}"
        if self.has_ended:
            return f"last heard {age} ago: the iterator is gone"
        if self.is_stopped:
            return f"last heard {age} ago: the process is stopped"
        if self.age_seconds < _OLD_SECONDS:
            return f"figures of {age} ago"
        return f"last heard {age} ago: in a long step, or waiting for data"

    def _recent(self) -> list[str]:
        recent = self.published.recent
        if recent.seconds <= 0 or self.published.is_over or self.has_ended:
            return []
        return [
            f"in the last {duration(recent.seconds)} of that: {plural(recent.elements, 'element')} "
            f"({recent.elements / recent.seconds:.3g}/s), waited "
            f"{percent(max(0.0, recent.wait_seconds / recent.seconds))} of the time"
        ]


@dataclass(frozen=True, slots=True)
class LiveProcess:
    """A running program, and its iterators."""

    pid: int
    command: str
    iterators: tuple[LiveIterator, ...]
    # Pages that could not be read, with the reason for each.
    damaged: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON takes."""
        return {
            "pid": self.pid,
            "command": self.command,
            "iterators": [iterator.to_dict() for iterator in self.iterators],
            "damaged": list(self.damaged),
        }

    def __str__(self) -> str:
        lines = [self._title(), *map(str, self.iterators)]
        lines += [f"figures that cannot be read: {text}" for text in self.damaged]
        return "\n\n".join(lines)

    def _repr_html_(self) -> str:
        remarks = [("figures that cannot be read", text) for text in self.damaged]
        pieces = [iterator._repr_html_() for iterator in self.iterators]
        return "".join([piece([("process", self._title())]), *pieces, piece(remarks)])

    def _title(self) -> str:
        return f"{self.pid}: {self.command}"

    def row(self) -> list[str]:
        """A row of a list of several."""
        elements = sum(one.published.stats.elements for one in self.iterators)
        return [str(self.pid), str(len(self.iterators)), number(elements), self.command]


def process(pid: int) -> LiveProcess:
    """The program with that number; raises an OSError with the reason if it publishes nothing."""
    if not os.path.isdir("/proc/self"):
        raise OSError(_NO_PROC)
    state = _state(pid)
    if state in ("", "Z", "X"):
        raise ProcessLookupError(f"there is no process {pid} (any more).")
    try:
        found = _look_at(pid, state)
    except PermissionError:
        raise PermissionError(
            f"process {pid} belongs to another user, or does not let anybody look at it: only its "
            "own user, and root, can see its figures."
        ) from None
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {pid} (any more).") from None
    if not found.iterators and not found.damaged:
        raise ProcessLookupError(
            f"process {pid} ({found.command}) has no iterator that publishes figures. {_HOW}"
        )
    return found


def own_iterators() -> tuple[LiveIterator, ...]:
    """The iterators of this process that publish figures."""
    read = [page.read() for page in own_pages()]
    pages = [published_from(data) for data in read if data is not None]
    return tuple(
        LiveIterator(page, max(0.0, time.monotonic() - page.monotonic_seconds), is_stopped=False)
        for page in sorted(pages, key=lambda page: page.iterator)
        # A forked child has the pages of its parent, too.
        if page.pid == os.getpid()
    )


def process_of_file(path: str) -> LiveProcess:
    """The program that publishes its figures in a file, or did so until it ended."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path!r} is no file.")
        data = read_page(descriptor)
        if data is None:
            raise OSError(
                f"{path!r} has no figures (yet): `bushel.iterate(dataset, stats={path!r})` puts "
                "them there."
            )
        page = published_from(data)
        has_ended = not _is_locked(descriptor)
    except ValueError as error:
        return LiveProcess(0, path, (), (printable(str(error)),))
    finally:
        os.close(descriptor)
    # Another machine has another monotonic clock.
    age = max(0.0, time.time() - page.unix_seconds)
    live = LiveIterator(page, age, is_stopped=False, has_ended=has_ended)
    return LiveProcess(page.pid, path, (live,), ())


def _is_locked(descriptor: int) -> bool:
    """Whether a running process has the lock of a file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def processes() -> list[LiveProcess]:
    """The programs whose figures this user may read."""
    if not os.path.isdir("/proc/self"):
        raise OSError(_NO_PROC)
    found = []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):  # Another user's process, or a process that has ended.
            one = _look_at(pid, _state(pid))
            if one.iterators or one.damaged:
                found.append(one)
    return found


def found_programs(program: int | str | None) -> list[LiveProcess]:
    """The program with that number, or with figures in that file; all programs if it is None."""
    if program is None:
        return processes()
    return [process_of_file(program) if isinstance(program, str) else process(program)]


def none_found() -> ProcessLookupError:
    """The message if no program was found."""
    return ProcessLookupError(f"no program of this user publishes figures. {_HOW}")


def _look_at(pid: int, state: str) -> LiveProcess:
    iterators, damaged = [], []
    own_pid = _own_pid(pid)
    for descriptor in _pages(pid):
        try:
            data = read_page(descriptor)
            if data is None:
                raise ValueError("nothing that is whole was written")
            page = published_from(data)
        except ValueError as error:
            damaged.append(printable(str(error)))
            continue
        finally:
            os.close(descriptor)
        # A forked child has the open files of its parent, too.
        if page.pid == own_pid:
            age = max(0.0, time.monotonic() - page.monotonic_seconds)
            iterators.append(LiveIterator(page, age, is_stopped=state in ("T", "t")))
    iterators.sort(key=lambda one: one.published.iterator)
    return LiveProcess(pid, _command(pid), tuple(iterators), tuple(damaged))


def _pages(pid: int) -> Iterator[int]:
    """Opens the pages of a process; the caller closes them."""
    folder = f"/proc/{pid}/fd"
    for name in sorted(os.listdir(folder)):
        with suppress(OSError):  # Closed meanwhile.
            path = f"{folder}/{name}"
            if not _is_page(path):
                continue
            # A former page may be another kind of file by now, which must not block.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(path, flags)
            own = f"/proc/self/fd/{descriptor}"
            if _is_page(own) and stat.S_ISREG(os.fstat(descriptor).st_mode):
                yield descriptor
            else:
                os.close(descriptor)


def _is_page(path: str) -> bool:
    return os.readlink(path).split(" ")[0] == _LINK


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(1 << 16)
    return b""


def _state(pid: int) -> str:
    """The letter of the state of a process; empty if there is no process."""
    # After the name, which may contain parentheses and blanks.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return fields[0].decode() if fields else ""


def _own_pid(pid: int) -> int:
    """The number of a process within its own container, which may differ."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return pid


def _command(pid: int) -> str:
    words = _read(pid, "cmdline").rstrip(b"\0").split(b"\0")
    return clipped(printable(" ".join(word.decode(errors="replace") for word in words)), 100)
