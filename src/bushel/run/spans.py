"""For `iterator.trace`: spans, which say when a step ran, in which process and on which thread."""

import os
import threading
from collections import deque
from typing import NamedTuple

# The most spans that are kept: some ten megabytes.
MOST_SPANS = 65_536

# A worker's report of a task: process and thread, start and duration of the task in nanoseconds of
# the clock that all processes of a machine share, and the fields of `StepSpan`.
StepSpan = tuple[int, int, int, int, int]
TaskSpans = tuple[int, int, int, int, list[StepSpan]]


class WorkSpan(NamedTuple):
    """A period in which a step or a thread was at work."""

    process: int
    thread: int
    name: str
    began: int
    nanoseconds: int
    # The number of records involved, and the position of the first; -1 if unknown.
    records: int = -1
    first: int = -1


class Spans:
    """Collects spans of this process and of its workers; any thread may add some."""

    def __init__(self) -> None:
        self.kept: deque[WorkSpan] = deque(maxlen=MOST_SPANS)
        # Numbers of ready blocks, with their times.
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
        """Adds a worker's report of a task."""
        process, thread, began, nanoseconds, steps = task
        self.workers.add(process)
        self.kept.append(WorkSpan(process, thread, "task", began, nanoseconds, -1, first))
        for number, of_thread, step_began, step_nanoseconds, records in steps:
            span = WorkSpan(
                process, of_thread, labels[number], step_began, step_nanoseconds, records, -1
            )
            self.kept.append(span)
