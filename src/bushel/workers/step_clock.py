"""For statistics: times the steps in a worker, between the notes of `workers/noted_steps.py`."""

import threading
from operator import add
from time import perf_counter_ns
from typing import Any

from bushel.run.call_sizes import bytes_of_one, is_measured
from bushel.run.spans import StepSpan
from bushel.run.step_total import SPENT
from bushel.workers.noted_steps import BETWEEN, Note

# Statistics of steps in one task, each as `SPENT`: number, records, timed records, their time, and
# the longest call with the first position of the task; the number of tasks that it stands for; and
# the number of elements that were measured, with their bytes.
StepsSpent = bytes

_COST_OF_A_NOTE = 150
_MOST_SHARE = 0.003
_MOST_TASKS = 64
# The most spans of one task, as they are sent with its elements.
_MOST_SPANS = 4_096


class _ThreadClock(threading.local):
    def __init__(self, all_spent: "list[dict[int, list[int]]]") -> None:
        self.operation = BETWEEN
        self.began = 0
        # Calls, records, nanoseconds, the longest call, and elements measured with their bytes, by
        # the number of the step.
        self.spent: dict[int, list[int]] = {}
        all_spent.append(self.spent)


class StepClock:
    """Passes notes on, and adds up the work of steps between two notes.

    All records are counted. If notes are so frequent that reading the clock would cost time, only
    some tasks are timed, and stand for the others.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._all: list[dict[int, list[int]]] = []
        self._thread = _ThreadClock(self._all)
        # One task in `_every` is timed (`_left` more until then); the number grows up to `_most`.
        # Step by step, as the first tasks are slow: they import and open what later ones find.
        self._every = self._most = self._left = 1
        self._timing = True
        # How many tasks were timed, and whether elements of this one are measured.
        self._timed, self._measures = 0, False
        # For a trace: the span of each step of the task.
        self.spans: list[StepSpan] | None = None

    def note(self, operation: int, position: int = -1, key: str = "", made: Any = None) -> None:
        """Passes on that a step begins, or that it made something of so many records."""
        self._note(operation, position, key)
        thread = self._thread
        if operation != BETWEEN:
            thread.operation = operation
            if self._timing:
                thread.began = perf_counter_ns()
            return
        operation, thread.operation = thread.operation, BETWEEN
        if operation == BETWEEN:
            return
        spent = thread.spent.get(operation)
        if spent is None:
            spent = thread.spent[operation] = [0, 0, 0, 0, 0, 0]
        spent[0] += 1
        spent[1] += max(0, position)
        if self._timing:
            nanoseconds = perf_counter_ns() - thread.began
            spent[2] += nanoseconds
            if nanoseconds > spent[3]:
                spent[3] = nanoseconds
            spans = self.spans
            if spans is not None and len(spans) < _MOST_SPANS:
                ident = threading.get_native_id()
                spans.append((operation, ident, thread.began, nanoseconds, max(0, position)))
            size = bytes_of_one(made) if self._measures else None
            if size is not None:
                spent[4] += 1
                spent[5] += size

    def begin(self, traced: bool) -> None:
        """Begins with a task."""
        self._left -= 1
        self._timing = traced or self._left <= 0
        self._timed += self._timing
        self._measures = self._timing and is_measured(self._timed)
        self.spans = [] if traced else None
        for spent in list(self._all):
            spent.clear()

    def read(self, seconds: float, first: int) -> StepsSpent:
        """The statistics of the steps of a task, given its duration and first position."""
        totals: dict[int, list[int]] = {}
        for spent in list(self._all):
            for number, (calls, records, nanoseconds, longest, *measured) in spent.items():
                total = totals.setdefault(number, [0, 0, 0, 0, 0, 0])
                total[0] += calls
                total[1] += records
                total[2] += nanoseconds
                total[3] = max(total[3], longest)
                total[4:] = map(add, total[4:], measured)
        timed, tasks = self._timing, self._every
        if timed and seconds > 0:
            notes = 2 * sum(total[0] for total in totals.values())
            share = notes * _COST_OF_A_NOTE / (1e9 * seconds * _MOST_SHARE)
            self._left = self._every = min(max(1, int(share) + 1), self._most)
            self._most = min(2 * self._most, _MOST_TASKS)
        return b"".join(
            SPENT.pack(
                number, records, records if timed else 0, nanoseconds, longest, first, tasks, *sizes
            )
            for number, (_, records, nanoseconds, longest, *sizes) in totals.items()
        )
