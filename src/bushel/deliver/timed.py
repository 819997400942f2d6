"""The iterator with statistics, which it publishes; if that fails, its page ends, not the loop."""

import functools
import json
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from bushel.core.node import Guard, Node, walk
from bushel.deliver.figures import Figures
from bushel.deliver.iterator import StreamIterator, T
from bushel.deliver.live_page import (
    LAST_FIGURES,
    LASTED_SECONDS,
    LivePage,
    seconds_until_next,
)
from bushel.deliver.run_history import RunHistory
from bushel.errors import StateError
from bushel.on_error.budget import bad_records_in
from bushel.run.step_times import StepTimes

if TYPE_CHECKING:
    from bushel.watch.stats import Stats

_log = logging.getLogger("bushel")

# The longest block of elements, in seconds of the loop, as statistics are updated between blocks.
# It is no shorter than the time between two updates.
_LONGEST_BLOCK_SECONDS = 0.8


@functools.cache
def _told_by() -> "Callable[[Figures, Node | None], Stats]":
    """The function that makes statistics of figures, in a module above this one."""
    from bushel.watch.stats import stats_of

    return stats_of


@functools.cache
def _nothing_yet() -> str:
    """The `Stats.to_dict` of an iterator that has done nothing, as JSON."""
    figures = Figures(0, 0.0, 0.0, 0, 0, 0.0, -1, steps=())
    return json.dumps(_told_by()(figures, None).to_dict())


class TimedIterator(StreamIterator[T]):
    """Delivers the elements of a stream, with statistics of each step.

    About twice a second it writes them to a page that `bushel top` finds.
    """

    def __init__(self, times: StepTimes, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._times = times
        self._page: LivePage | None = None
        self._run_history = RunHistory()
        # Whether anything was written to the page yet, and whether that was at the end of the data.
        self._is_announced = self._is_at_end = False
        # When to take the next sample of the run, and when to update the page.
        self._due = self._page_due = 0.0
        # Whether the state counts bad records; None until it is first needed. (No cached property:
        # it creates the iterator's `__dict__`, which makes every attribute slower to find, and
        # each element took a sixth longer.)
        self._has_guards: bool | None = None
        # Imported now, so that the first element does not wait for it.
        self._stats_of = _told_by()

    def _note_the_end(self) -> None:
        self._publish(is_over=True)

    def _look(self) -> None:
        """Samples the run, and updates the page when that is due."""
        if not self._is_announced and not self._times.workers:
            self._begin_to_publish()
            return
        if perf_counter() >= self._page_due:
            self._publish()
        began = perf_counter()
        with suppress(Exception), self._alone():  # As there: no training should end for this.
            self._run_history.add(self._without_steps())
        ended = perf_counter()
        self._due = min(self._page_due, ended + seconds_until_next(ended - began))

    def _begin_to_publish(self) -> None:
        """Makes a page with little content before the first element, as the loop may hang there.

        In a program of many short iterators, only those that last have a page.
        """
        now = perf_counter()
        has_begun = bool(self._run_history.looks)
        if not has_begun:
            self._run_history.begin()
        if not has_begun and self._page is None and LAST_FIGURES.are_too_many(now):
            self._due = self._page_due = now + LASTED_SECONDS
            return
        self._is_announced = True
        self._due = self._page_due = now + seconds_until_next(0.0)
        try:
            if self._page is None:
                self._page = LivePage()
            self._page.announce(_nothing_yet(), monotonic())
        except Exception as error:
            self._give_up(error)

    def _publish(self, is_over: bool = False) -> None:
        """Updates the page, unless that has failed before."""
        if self._page_due == math.inf:
            return
        began = perf_counter()
        has_name = self._page is not None and self._page.has_name
        if is_over and not has_name and LAST_FIGURES.are_too_many(began):
            self._end_page()
            # It may be set to a state, and continue.
            self._page, self._page_due = None, began + seconds_until_next(0.0)
            return
        # Before the first element the steps have done nothing.
        with_steps = self._waits.refills > 0 or is_over
        self._is_at_end = is_over
        try:
            if self._page is None:
                self._page = LivePage()
            with self._alone():
                figures = self._figures() if with_steps else self._without_steps()
            stats = self._stats_of(figures, self._node)
            self._page.put(stats.to_dict(), is_over, monotonic())
        except Exception as error:
            self._give_up(error)
            return
        block = self._block_size
        takes = self._page.elements_within(_LONGEST_BLOCK_SECONDS)
        if takes is not None and block.size > takes:
            block.size = takes
        ended = perf_counter()
        if is_over:
            LAST_FIGURES.took(ended - began)
        self._page_due = ended + seconds_until_next(ended - began)

    def _give_up(self, error: Exception) -> None:
        # Any error at all: no training should end because its page cannot be written.
        _log.info("`bushel top` cannot look at this iterator: %s", error)
        self._end_page()

    def _end_page(self) -> None:
        self._page_due = math.inf
        if self._page is not None:
            self._page.close()

    def publish_to(self, page: LivePage) -> None:
        """Updates that page from now on, and no other."""
        self._end_page()
        self._page, self._page_due, self._due = page, 0.0, 0.0

    def close(self) -> None:
        if self._page is not None and self._page.has_name and not self._closed:
            self._publish(self._is_at_end)  # What is on it afterwards.
        super().close()
        self._end_page()

    def _figures(self, **others: Any) -> Figures:
        return self._without_steps(steps=tuple(self._times.totals()), **others)

    def _without_steps(self, **others: Any) -> Figures:
        times = self._times
        workers = tuple(figures() for figures in times.workers)
        return super()._figures(
            threads=tuple(describe() for describe in times.threads),
            workers=workers,
            ready_blocks=times.ready_blocks() + sum(one.ready_tasks for one in workers),
            bad_records=self._bad_records(),
            parts_together=times.parts_together,
            **{"steps": (), **others},
        )

    def _history(self, figures: Figures) -> RunHistory:
        self._run_history.add(figures)
        return self._run_history

    def _ready_blocks(self) -> int:
        """The number of finished blocks and tasks that are not taken yet."""
        workers = (figures() for figures in self._times.workers)
        return self._times.ready_blocks() + sum(one.ready_tasks for one in workers)

    def _bad_records(self) -> int:
        """The number of bad records, which the state counts."""
        if self._has_guards is None:
            node = self._node
            self._has_guards = node is not None and any(
                isinstance(one, Guard) for one in walk(node)
            )
        if not self._has_guards:
            return 0
        with suppress(StateError):
            return sum(bad_records_in(self._state_now()))
        return 0
