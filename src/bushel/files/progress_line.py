"""A line that tells how far long work has come."""

import sys
import time
from typing import TextIO

# Work that is done sooner than that needs no line.
_QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.1
# Where nobody watches, a line now and then is enough.
_EVERY_SECONDS_IN_A_LOG = 30.0


class ProgressLine:
    """Shows how much of something is done, and how long the rest will take.

    On a terminal it is one line that changes; in a log, a line every half minute. Where nobody
    knows how much there is in all, `total` is None.
    """

    def __init__(
        self,
        what: str,
        total: int | None,
        unit: str = "bytes",
        stream: TextIO | None = None,
        before: int = 0,
        changing: bool | None = None,
    ) -> None:
        """`changing` says whether it is one line that changes; by default, on a terminal."""
        self._what, self._total, self._unit = what, total, unit
        # What was done already tells nothing of how fast it goes.
        self._before = before
        self._stream = sys.stderr if stream is None else stream
        self._began = self._shown = time.monotonic()
        terminal = bool(self._stream) and self._stream.isatty()
        self._terminal = terminal if changing is None else changing
        self._done = 0
        self._visible = False

    def to(self, done: int) -> None:
        """Says how much is done by now."""
        self._done = done
        now = time.monotonic()
        every = _EVERY_SECONDS if self._terminal else _EVERY_SECONDS_IN_A_LOG
        quiet = _QUIET_SECONDS if self._terminal else _EVERY_SECONDS_IN_A_LOG
        if now - self._began < quiet or now - self._shown < every:
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
        if self._stream is None:
            return
        if self._terminal:
            self._stream.write(f"\r\x1b[K{text}")
            self._visible = True
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def end(self) -> None:
        """Removes the line."""
        if self._visible:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._visible = False

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


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
