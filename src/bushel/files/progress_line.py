"""The progress line of slow operations.

It is shown where somebody sees it: at a terminal, and in a notebook. `BUSHEL_PROGRESS=0` in the
environment switches it off, and `BUSHEL_PROGRESS=1` has it in logs as well.
"""

import os
import sys
import threading
import time
import weakref
from typing import Literal, TextIO

# Work that is done sooner than that needs no line.
_QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.1
# Where nobody watches, a line now and then is enough.
_EVERY_SECONDS_IN_A_LOG = 30.0

_VARIABLE = "BUSHEL_PROGRESS"
_OFF, _ON = ("0", "off", "no", "false"), ("1", "on", "yes", "true")

# A line that changes, in one of the two; lines in a log; none.
Look = Literal["terminal", "notebook", "log", "none"]


def look_of(stream: TextIO | None, asked: bool | None = None) -> Look:
    """How progress is shown on a stream: by what the environment says, by what a program asked
    for, and else by whether somebody sees it."""
    said = os.environ.get(_VARIABLE, "").lower()
    if stream is None or said in _OFF or (asked is False and said not in _ON):
        return "none"
    if stream.isatty():
        return "terminal"
    if _is_in_notebook():
        return "notebook"
    return "log" if asked or said in _ON else "none"


def _is_in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return running is not None and hasattr(running, "kernel")


class ProgressLine:
    """Shows how much of something is done, and how long the rest will take.

    On a terminal and in a notebook it is one line that changes; in a log, if it is wanted there,
    a line every half minute. Of several at the same time, the first is shown: it is about the
    whole of which others are parts. Where nobody knows how much there is in all, `total` is None.
    """

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str = "bytes",
        stream: TextIO | None = None,
        before: int = 0,
        asked: bool | None = None,
    ) -> None:
        """`asked` says whether a program wants it shown, if it says anything."""
        self._what, self._total, self._unit = what, total, unit
        # What was done already tells nothing of how fast it goes.
        self._before = before
        self._stream = sys.stderr if stream is None else stream
        self._look = look_of(self._stream, asked)
        self._began = self._shown = time.monotonic()
        self._done = 0
        # How many letters are to be removed.
        self._visible = 0
        if self._look != "none":
            _shown_now.begin(self)

    def to(self, done: int) -> None:
        """Says how much is done by now."""
        self._done = done
        if self._look == "none":
            return
        now = time.monotonic()
        in_log = self._look == "log"
        every = _EVERY_SECONDS_IN_A_LOG if in_log else _EVERY_SECONDS
        quiet = _EVERY_SECONDS_IN_A_LOG if in_log else _QUIET_SECONDS
        if now - self._began < quiet or now - self._shown < every or not _shown_now.is_first(self):
            return
        self._shown = now
        self._write(self.text(now - self._began))

    def text(self, seconds: float) -> str:
        """The line, `seconds` after the beginning.

        >>> progress = ProgressLine("indexing a.tar", 4_000_000_000)
        >>> progress._done = 1_000_000_000
        >>> progress.text(10.0)
        'indexing a.tar: 25% of 4.0 GB, 100.0 MB/s, 0:30 left'
        """
        rate = (self._done - self._before) / seconds if seconds else 0.0
        if self._total is None:
            return f"{self._what}: {_amount(self._done, self._unit)}, {_amount(rate, self._unit)}/s"
        share = self._done / self._total if self._total else 1.0
        told = f"{self._what}: {share:.0%} of {_amount(self._total, self._unit)}"
        if rate <= 0:
            return told  # No rate to tell the rest by.
        left = _clock((self._total - self._done) / rate)
        return f"{told}, {_amount(rate, self._unit)}/s, {left} left"

    def _write(self, text: str) -> None:
        if self._look == "log":
            self._stream.write(text + "\n")
        elif self._look == "terminal":
            self._stream.write(f"\r\x1b[K{text}")
        else:  # A notebook goes back to the beginning of a line, and cannot remove the rest of it.
            self._stream.write(f"\r{text:<{self._visible}}")
        self._visible = 0 if self._look == "log" else len(text)
        self._stream.flush()

    def end(self) -> None:
        """Removes the line."""
        _shown_now.end(self)
        if self._visible:
            spaces = " " * self._visible
            self._stream.write("\r\x1b[K" if self._look == "terminal" else f"\r{spaces}\r")
            self._stream.flush()
            self._visible = 0

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class _ShownNow:
    """Which lines there are at a time, by any thread; a terminal has room for one."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        # Weak, for those of somebody who never says that the work has ended.
        self._lines: list[weakref.ref[ProgressLine]] = []
        self._lock = threading.Lock()

    def begin(self, line: ProgressLine) -> None:
        with self._lock:
            self._lines.append(weakref.ref(line))

    def end(self, line: ProgressLine) -> None:
        with self._lock:
            self._lines = [other for other in self._lines if other() not in (line, None)]

    def is_first(self, line: ProgressLine) -> bool:
        with self._lock:
            first = next((found for other in self._lines if (found := other()) is not None), None)
        return first is line


_shown_now = _ShownNow()


def _amount(number: float, unit: str) -> str:
    if unit != "bytes":
        return f"{number:,.0f} {unit}"
    for name in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {name}" if name == "B" else f"{number:.1f} {name}"
        number /= 1000
    return f"{number:.1f} TB"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
