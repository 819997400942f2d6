"""The history of threads and workers over a run, in a bounded number of samples, for the report."""

from collections.abc import Iterator
from typing import NamedTuple

from bushel.deliver.figures import Figures

# The number of samples that a picture has room for; above it, every second one is dropped.
MOST_LOOKS = 400
# The last events are kept, for a run that never comes to rest.
MOST_EVENTS = 100


class RunLook(NamedTuple):
    """Totals from the beginning of the run up to a sample."""

    # Seconds since the first element was asked for; elements delivered until then.
    seconds: float
    elements: int
    wait_seconds: float
    workers: int
    busy_seconds: float
    idle_seconds: float
    # Not a total: blocks ready at that time.
    ready_blocks: int


_BEGINNING = RunLook(0.0, 0, 0.0, 0, 0.0, 0.0, 0)


class RunEvent(NamedTuple):
    """A change between two samples."""

    seconds: float
    elements: int
    # "threads", "workers", "tasks ahead" or "deaths".
    what: str
    text: str


class RunHistory:
    """Keeps samples of a run, and the changes between them."""

    def __init__(self) -> None:
        self.looks: list[RunLook] = []
        self.events: list[RunEvent] = []
        # The number of events before those that are kept.
        self.forgotten = 0
        self._seconds_each = 0.0
        self._threads: tuple[str, ...] = ()
        # For each pool of workers: the last change that was noted, and its deaths.
        self._changed: dict[int, float] = {}
        self._deaths: dict[int, int] = {}

    def begin(self) -> None:
        """Adds a sample of a run that has done nothing yet, without workers."""
        self.looks.append(_BEGINNING)

    def add(self, figures: Figures) -> None:
        """Adds a sample."""
        for event in self._news(figures):
            self.events.append(event)
        if len(self.events) > MOST_EVENTS:
            self.forgotten += len(self.events) - MOST_EVENTS
            del self.events[:-MOST_EVENTS]
        seconds = figures.elapsed_seconds
        if self.looks and seconds - self.looks[-1].seconds < self._seconds_each:
            return
        pools = figures.workers
        self.looks.append(
            RunLook(
                seconds,
                figures.elements,
                figures.wait_seconds,
                sum(pool.workers for pool in pools),
                sum(pool.busy_seconds for pool in pools),
                sum(pool.idle_seconds for pool in pools),
                figures.ready_blocks,
            )
        )
        if len(self.looks) >= MOST_LOOKS:
            self._seconds_each = 2 * seconds / len(self.looks)
            del self.looks[1:-1:2]

    def _news(self, figures: Figures) -> Iterator[RunEvent]:
        seconds, elements = figures.elapsed_seconds, figures.elements
        for number, text in enumerate(figures.threads):
            was = self._threads[number] if number < len(self._threads) else None
            if text != was:
                yield RunEvent(seconds, elements, "threads", text)
        self._threads = figures.threads
        for number, pool in enumerate(figures.workers):
            noted = self._changed.get(number, -1.0)
            for change in pool.changes:
                if change.seconds > noted:
                    self._changed[number] = change.seconds
                    text = f"{change.was} -> {change.now}: {change.why}"
                    yield RunEvent(seconds, elements, change.what, text)
            more = pool.deaths - self._deaths.get(number, 0)
            if more > 0:
                self._deaths[number] = pool.deaths
                text = f"{more} ended and were replaced, {pool.deaths} in all"
                yield RunEvent(seconds, elements, "deaths", text)
