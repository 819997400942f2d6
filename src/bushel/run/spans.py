"""Spans for a trace: when a step ran, in which process and on which thread."""

import os
import threading
from collections import deque
from typing import NamedTuple

# The last so many are kept, some ten megabytes.
MOST_SPANS = 65_536

# What a worker tells of a task: its process and thread, when the task began and how long it took in
# nanoseconds of the clock that all processes of a machine share, and what `StepSpan` says.
StepSpan = tuple[int, int, int, int, int]
TaskSpans = tuple[int, int, int, int, list[StepSpan]]


class WorkSpan(NamedTuple):
    """A time in which something was at work."""

    process: int
    thread: int
    name: str
    began: int
    nanoseconds: int
    # How many records it was about, and the position of the first of them; -1 if not known.
    records: int = -1
    first: int = -1


class Spans:
    """Collects spans of this process and of its workers; any thread may add some."""

    def __init__(self) -> None:
        self.kept: deque[WorkSpan] = deque(maxlen=MOST_SPANS)
        # Blocks that were ready, and when.
        self.ready: deque[tuple[int, int]] = deque(maxlen=MOST_SPANS)
        self.workers: set[int] = set()
        self._process = os.getpid()

    def add(
        self, name: str, began: int, nanoseconds: int, records: int = -1, first: int = -1
    ) -> None:
        """Adds a span of the calling thread."""
        thread = threading.get_native_id()
        self.kept.append(WorkSpan(self._process, thread, name, began, nanoseconds, records, first))

    def add_task(self, task: TaskSpans, labels: list[str], first: int) -> None:
        """Adds what a worker did in a task."""
        process, thread, began, nanoseconds, steps = task
        self.workers.add(process)
        self.kept.append(WorkSpan(process, thread, "task", began, nanoseconds, -1, first))
        for number, of_thread, step_began, step_nanoseconds, records in steps:
            span = WorkSpan(
                process, of_thread, labels[number], step_began, step_nanoseconds, records, -1
            )
            self.kept.append(span)
