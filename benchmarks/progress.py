"""Shows on standard error what is being measured, since a run takes minutes."""

import sys
from time import monotonic


class Progress:
    """Keeps one line up to date on a terminal; elsewhere prints a line for each workload."""

    def __init__(self, workloads: int) -> None:
        self._workloads = workloads
        self._number = 0
        self._title = ""
        self._start = monotonic()
        self._live = sys.stderr.isatty()

    def begin(self, title: str) -> None:
        self._number += 1
        self._title = title
        if not self._live:
            print(self._line(), file=sys.stderr, flush=True)

    def show(self, stage: str, contender: str) -> None:
        if self._live:
            line = f"{self._line()}  {stage}  {contender}"
            print(f"\r\033[K{line[:118]}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _line(self) -> str:
        minutes, seconds = divmod(int(monotonic() - self._start), 60)
        return f"{minutes}:{seconds:02d}  [{self._number}/{self._workloads}] {self._title}"
