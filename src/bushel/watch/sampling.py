"""For `profile`: runs a sample of a pipeline, with and without timing each call.

Each run goes on where the one before it ended, so that records are not read again while they are
still in the caches of the machine.
"""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from bushel.checkpoint.signed import describe_pipeline
from bushel.core.frozen import plain
from bushel.core.node import Node, Place
from bushel.core.sizes import bytes_of
from bushel.deliver.iterator import StreamIterator
from bushel.errors import StateError
from bushel.files.backend import traffic
from bushel.run.build import lowered
from bushel.run.plan import Plan
from bushel.run.step_total import StepTotal
from bushel.run.thread_time import Stopwatch
from bushel.watch.memory_costs import memory_costs
from bushel.watch.other_programs import cores_of_others, cores_used
from bushel.watch.profile_counters import CostTimes, Extra, LockLog, OutOfTimeError
from bushel.watch.sending import sending_costs

# Pieces of a run that are timed together.
PIECE_SECONDS = 0.05
# Elements whose size is looked at.
_SIZED = 8
# So many are sent to see what that takes, if they do not take longer than that, or are larger.
_MOST_SENT = 128
_FEW_SECONDS = 0.1
_MOST_BYTES_SENT = 1 << 25


@plain
class StepsSample:
    """What the steps did while they were looked at."""

    totals: list[StepTotal]
    # By the `id` of a step's node.
    extras: dict[int, Extra]
    elements: int
    # Until the first element, and after it.
    first_seconds: float
    bytes_each: float
    requests: int
    # What those asked for.
    requested_bytes: int
    # Times that the end of the data was reached.
    passes: int
    state: Any
    # Seconds to send an element after a step, and to take it elsewhere, by the `id` of its node.
    sending: dict[int, tuple[float, float]]
    # Seconds to copy the large arrays of an element, and those that new memory takes beside.
    copying_seconds: float = 0.0
    fresh_seconds: float = 0.0


@plain
class MeasuredPace:
    """How fast elements came."""

    elements: int
    seconds: float
    queued_seconds: float = 0.0
    first_seconds: float = 0.0
    # Times that the end of the data was reached.
    passes: int = 0
    # Seconds for an element, piece by piece.
    pieces: tuple[float, ...] = ()
    state: Any = None
    # Of the thread that asked, on a core, for an element.
    here_seconds: float = 0.0
    # What it slept for each in between.
    step_seconds: float = 0.0
    # Cores that other programs used meanwhile.
    cores_of_others: float = 0.0
    # Of memory that worker processes had for themselves in the end.
    worker_bytes: int = 0
    # Requests of this process for an element.
    requests: float = 0.0

    @property
    def seconds_each(self) -> float | None:
        """Seconds for an element; None where there was none."""
        return self.seconds / self.elements if self.elements and self.seconds > 0 else None


def _is_last(step: Node, node: Node) -> bool:
    """Whether what comes out of a step is what comes out of the whole."""
    while node is not step and isinstance(node, Place):
        (node,) = node.inputs
    return node is step


def sampled(
    planned: Plan, seconds: float, most_seconds: float, crossings: Sequence[Node], most: int
) -> StepsSample:
    """Looks at every step for some seconds, or until there are as many elements as `most`.

    For `most_seconds` where no element came until then; if none comes at all, of none.

    Of elements that come out of the steps in `crossings` it is tried what it takes to send them.
    """
    began = perf_counter()
    times = CostTimes(began + most_seconds)
    opened = lowered(planned.dealt, planned.cut, None, times)
    pipeline = describe_pipeline(planned.described)
    for step in crossings:
        times.keep(step)
    requests_before, bytes_before = traffic.requests, traffic.bytes
    lock = LockLog()
    lock.start()
    elements = passes = 0
    first_seconds = 0.0
    sizes: list[int] = []
    with StreamIterator[Any](opened.stream, pipeline, node=planned.described) as iterator:
        beginning = state = _state_of(iterator)
        try:
            lock.working = True
            while not elements or (elements < most and perf_counter() < began + seconds):
                try:
                    element = next(iterator)
                except StopIteration:
                    passes += 1
                    if not elements or not begins_again(iterator, beginning):
                        break
                    continue
                if not elements:
                    first_seconds = perf_counter() - began
                elements += 1
                if len(sizes) < _SIZED:
                    sizes.append(bytes_of(element))
            state = _state_of(iterator)
        except OutOfTimeError:
            pass  # What was seen until then is told, or nothing was.
        finally:
            lock.working = False
            lock.stop(wait=True)
        totals = times.totals()
        asked_for = traffic.requests - requests_before, traffic.bytes - bytes_before
        if not elements:
            return StepsSample(totals, {}, 0, 0.0, 0.0, *asked_for, passes, state, {})
        last = _few(iterator)
    times.note_lock(lock.seen)
    sending = {}
    for step in crossings:
        rows = last if _is_last(step, planned.dealt) else times.kept_of(step, _MOST_SENT)
        sending[id(step)] = sending_costs(rows or last)
    copying, fresh = memory_costs(last[-1]) if last else (0.0, 0.0)
    return StepsSample(
        totals,
        times.extras_by_node(),
        elements,
        first_seconds,
        sum(sizes) / len(sizes),
        *asked_for,
        passes,
        state,
        sending,
        copying,
        fresh,
    )


def _few(iterator: StreamIterator[Any]) -> list[Any]:
    """A few more elements, to be sent."""
    made: list[Any] = []
    until = perf_counter() + _FEW_SECONDS
    try:
        while len(made) < _MOST_SENT and perf_counter() < until:
            made.append(next(iterator))
            if len(made) * bytes_of(made[0]) > _MOST_BYTES_SENT:
                break
    except (StopIteration, OutOfTimeError):
        pass
    return made


def _state_of(iterator: StreamIterator[Any]) -> Any:
    """Where an iterator is; None of users' own that cannot tell."""
    try:
        return iterator.get_state()
    except StateError:
        return None


def begins_again(iterator: StreamIterator[Any], state: Any) -> bool:
    """Goes to a place; iterators of users' own that cannot tell theirs are read once."""
    if state is not None:
        iterator.set_state(state)
    return state is not None


def paced(planned: Plan, state: Any, seconds: float, most: int) -> MeasuredPace:
    """Runs in this thread alone, and nobody looks at steps."""
    opened = lowered(planned.dealt, planned.cut)
    pipeline = describe_pipeline(planned.described)
    elements = 0
    spent_seconds = queued = 0.0
    pieces: list[float] = []
    with StreamIterator[Any](opened.stream, pipeline, node=planned.described) as iterator:
        beginning = _state_of(iterator)
        begins_again(iterator, state)
        used = cores_used()
        stopwatch, count, began = Stopwatch(), 0, perf_counter()
        ended, is_over, warm = began + seconds, False, False
        while not is_over:
            try:
                next(iterator)
                count += 1
            except StopIteration:
                is_over = not begins_again(iterator, beginning)
            now = perf_counter()
            is_over = is_over or now >= ended or elements + count >= most
            if is_over or now - began >= PIECE_SECONDS:
                spent = stopwatch.read()
                # What is opened and filled comes before the first piece that counts.
                if count and (warm or is_over):
                    elements += count
                    spent_seconds += spent.seconds
                    queued += spent.queued_seconds
                    pieces.append(spent.seconds / count)
                warm = warm or count > 0
                stopwatch, count, began = Stopwatch(), 0, perf_counter()
        others = cores_of_others(used, cores_used())
        state = _state_of(iterator)
    return MeasuredPace(
        elements,
        spent_seconds,
        queued,
        pieces=tuple(pieces),
        state=state,
        cores_of_others=others,
    )
