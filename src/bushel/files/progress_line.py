"""The progress line of slow operations: when and where it is shown, and the time left.

It is shown on a terminal, and in a notebook. `BUSHEL_PROGRESS=0` in the environment switches it
off, and `BUSHEL_PROGRESS=1` shows it in logs as well.
"""

import os
import sys
import threading
import time
import weakref
from typing import Literal, TextIO

# Work that takes less needs no line.
_QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.1
# The interval of lines in a log, which is rarely watched.
_EVERY_SECONDS_IN_A_LOG = 30.0

_VARIABLE = "BUSHEL_PROGRESS"
_OFF, _ON = ("0", "off", "no", "false"), ("1", "on", "yes", "true")

# One line that changes, on a terminal or in a notebook; lines in a log; none.
Look = Literal["terminal", "notebook", "log", "none"]


def look_of(stream: TextIO | None, asked: bool | None = None) -> Look:
    """How progress is shown on a stream: by the environment, the program, or its kind."""
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
    """Shows the progress of a task, and the time left.

    On a terminal and in a notebook it is one line that changes; in a log, if it is wanted there, a
    line every half minute. Of several at the same time, the first is shown, as the others are parts
    of its task. If the total amount is unknown, `total` is None.
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
        """`asked` says whether the program wants it shown; None if it does not say."""
        self._what, self._total, self._unit = what, total, unit
        # Work done earlier says nothing about the speed.
        self._before = before
        self._stream = sys.stderr if stream is None else stream
        self._look = look_of(self._stream, asked)
        self._began = self._shown = time.monotonic()
        self._done = 0
        # The number of characters to erase.
        self._visible = 0
        if self._look != "none":
            _shown_now.begin(self)

    def to(self, done: int) -> None:
        """Updates the amount that is done."""
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
        """The text of the line, `seconds` after the beginning.

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
            return told  # The rate is unknown, and so is the time left.
        left = _clock((self._total - self._done) / rate)
        return f"{told}, {_amount(rate, self._unit)}/s, {left} left"

    def _write(self, text: str) -> None:
        if self._look == "log":
            self._stream.write(text + "\n")
        elif self._look == "terminal":
            self._stream.write(f"\r\x1b[K{text}")
        else:  # A notebook can return to the beginning of a line, but not erase the rest.
            self._stream.write(f"\r{text:<{self._visible}}")
        self._visible = 0 if self._look == "log" else len(text)
        self._stream.flush()

    def end(self) -> None:
        """Erases the line."""
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
    """The lines that are active, in any thread; a terminal has room for one."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        # Weak references, for lines that are never ended.
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
