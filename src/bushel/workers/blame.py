"""Decides whether an element ended a worker; the error that names its step and position."""

from collections.abc import Sequence
from typing import Any

from bushel.errors import WorkerError
from bushel.order.keys import key_of
from bushel.workers.fragment import Fatal, Fragment
from bushel.workers.task import Task

# A record that kills this many workers in a row is to blame.
_MOST_DEATHS = 3
_MOST_AMONG_OTHERS = 12
# The most tries of a task, whatever ends the workers that have it.
_MOST_TRIES = 40
# The most tries if workers end by themselves, outside of all steps.
_MOST_ENDS = 4
_AFTER_ITS_STEPS = (
    ", after its steps. Do they close files that are not theirs, or leave a thread that ends the "
    "process? `worker_count=0` runs them in your own process"
)


class Blame:
    """Counts deaths of a pipeline's workers, until an element is known to be the cause."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self._fragments = fragments
        # Workers that died of something other than an element.
        self.other_deaths = 0

    def note(
        self, task: Task | None, noted: tuple[int, int, int, int, str], killed: bool, end: str
    ) -> WorkerError | None:
        """Finds the cause of a worker's death; returns an error if the task is to be given up.

        If the cause was certainly an element, the task says so from here on.

        Args: task: the worker's oldest task. noted: its last note: count of notes, task, step,
        position and key. killed: whether another process ended it. end: how it ended, for messages.
        """
        count, number, operation, position, key = noted
        # With no count it had not even begun.
        begun = count > 0 and task is not None and number == task.message.task
        at_it = begun and operation >= 0
        if task is not None:
            task.tries += 1
            task.ends = task.ends + 1 if begun and not (at_it or killed) else 0
            if task.tries >= _MOST_TRIES or task.ends >= _MOST_ENDS:
                return WorkerError(
                    f"{task.tries} worker processes ended with {task.positions()}: the last one "
                    f"{end}{_AFTER_ITS_STEPS if task.ends else ''}."
                )
        if task is None or task.cancelled or not at_it:
            self.other_deaths += 1
            return None
        if not task.deaths:
            task.other_deaths = self.other_deaths
        if task.message.carefully:
            if task.suspect not in (None, (operation, position)):
                task.deaths = 1  # Another element than the last time.
            task.suspect = (operation, position)
        task.deaths += 1
        task.message.carefully = True
        # If workers also die of other causes, some process is killing them, and a death at this
        # element means less.
        alone = task.other_deaths == self.other_deaths
        if task.suspect is None or task.deaths < (_MOST_DEATHS if alone else _MOST_AMONG_OTHERS):
            return None
        fragment = self._fragments[task.message.fragment]
        if not key and (found := _key_at(fragment, operation, position)) is not None:
            key = repr(found)
        label = self.label(task, operation)
        of_key = f" (key {key})" if key else ""
        text = (
            f"the element at position {position}{of_key} ended {task.deaths} worker processes in a "
            f"row, in `{label}`: the last one {end}. Look at this element; "
            "`worker_count=0` runs it in your own process."
        )
        # The task is done once more, for the elements before this one; the error then takes its
        # place.
        task.message.fatal = Fatal(operation, position, text)
        return None

    def label(self, task: Task, operation: int) -> str:
        """The name of a step of a task, by its number."""
        nodes = self._fragments[task.message.fragment].nodes()
        return nodes[operation].label if 0 <= operation < len(nodes) else "the first step"


def _key_at(fragment: Fragment, operation: int, position: int) -> Any:
    """The key of the record that a step processed, if it is known."""
    node = fragment.nodes()[operation]
    if any(step is node for step in fragment.steps):
        return None if fragment.root is None else key_of(fragment.root, position)
    return key_of(node, position)
