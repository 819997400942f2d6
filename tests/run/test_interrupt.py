"""Ctrl-C, wherever it strikes, loses nothing and disturbs nothing."""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bushel import DatasetIterator, IterDataset, MapDataset, ReadOptions
from bushel.experimental import ThreadPrefetchIterDataset
from bushel.run.positional import PositionalStream
from tests.contract.events import Event, freeze, freeze_state, run_events
from tests.contract.pipelines import INLINE, PIPELINES, Kit, stream_of
from tests.patience import PATIENCE_SECONDS
from tests.thorough import THOROUGH


def _go_on(iterator: DatasetIterator[Any]) -> tuple[list[Event], int]:
    """Takes everything, going on after interrupts; returns how many there were, too."""
    events: list[Event] = []
    interrupts = 0
    while True:
        before = freeze_state(iterator.get_state())
        try:
            what = freeze(next(iterator))
        except StopIteration:
            return events, interrupts
        except KeyboardInterrupt:
            interrupts += 1
            assert freeze_state(iterator.get_state()) == before
            continue
        events.append((what, freeze_state(iterator.get_state())))


# One for each operation: `test_interrupt_anywhere` has all pipelines, and all of their calls.
@pytest.mark.parametrize("threaded", [False, True], ids=["inline", "threads"])
@pytest.mark.parametrize("name", [name for name in PIPELINES if THOROUGH or ":" not in name])
def test_reading_is_interrupted(name: str, threaded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit(read=ReadOptions(2, 8) if threaded else INLINE)
    expected = run_events(stream_of(name, kit))
    pull = PositionalStream.pull
    for strike in (0, 1, 2, 5):
        pulls = 0

        def interrupted(stream: PositionalStream, want: int, strike: int = strike) -> Any:
            nonlocal pulls
            # Pulling may pull from others, so that by the end of it the count is another one.
            strikes = pulls == strike
            pulls += 1
            # Before the work or after it.
            if strikes and strike % 2:
                raise KeyboardInterrupt
            chunk = pull(stream, want)
            if strikes:
                raise KeyboardInterrupt
            return chunk

        with monkeypatch.context() as patch, iter(stream_of(name, kit)) as iterator:
            patch.setattr(PositionalStream, "pull", interrupted)
            if threaded:
                iterator.start_prefetch()
            events, interrupts = _go_on(iterator)
        assert events == expected
        assert interrupts == (pulls > strike)


class _InterruptOnce:
    """A function that is interrupted the first time it meets an element."""

    def __init__(self, at: int) -> None:
        self._at, self._struck = at, False

    def __call__(self, element: int) -> Any:
        if element == self._at and not self._struck:
            self._struck = True
            raise KeyboardInterrupt
        return element

    def is_even(self, element: int) -> bool:
        return bool(self(element) % 2 == 0)


def _pipelines(strike: _InterruptOnce, read: ReadOptions) -> Iterator[IterDataset[Any]]:
    numbers = MapDataset.range(40)
    stream = numbers.to_iter_dataset(read)
    yield numbers.map(strike).to_iter_dataset(read)
    yield numbers.filter(strike.is_even).to_iter_dataset(read).batch(3)
    yield stream.map(strike)
    yield stream.filter(strike.is_even).batch(3)
    yield stream.map(strike).filter(lambda number: number % 3).random_map(_draw, seed=1)
    yield IterDataset.mix([stream, stream.map(strike)], [2, 1])
    yield ThreadPrefetchIterDataset(stream.map(strike), prefetch_buffer_size=6).batch(4)


def _draw(number: int, rng: Any) -> Any:
    return number, rng.random()


@pytest.mark.parametrize("read", [INLINE, ReadOptions(2, 8)], ids=["inline", "threads"])
@pytest.mark.parametrize("which", range(7))
def test_a_function_is_interrupted(which: int, read: ReadOptions) -> None:
    (expected,) = (
        run_events(ds)
        for number, ds in enumerate(_pipelines(_InterruptOnce(-1), read))
        if number == which
    )
    for at in (0, 1, 7, 12, 13):
        ds = list(_pipelines(_InterruptOnce(at), read))[which]
        with iter(ds) as iterator:
            iterator.start_prefetch()
            assert _go_on(iterator) == (expected, 1)


def test_waiting_for_a_thread_is_interrupted() -> None:
    about_to_wait, interrupted = threading.Event(), threading.Event()

    def slow(element: int) -> int:
        if element == 5 and not interrupted.is_set():
            assert about_to_wait.wait(PATIENCE_SECONDS)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert interrupted.wait(PATIENCE_SECONDS)
        return element

    ds = MapDataset.range(12).map(slow).to_iter_dataset(ReadOptions(2, 4))
    with iter(ds) as iterator:
        iterator.start_prefetch()
        state = iterator.get_state()
        with pytest.raises(KeyboardInterrupt):
            about_to_wait.set()
            for _ in range(6):
                # Elements before the slow one may come first; they are taken again below.
                next(iterator)
        interrupted.set()
        iterator.set_state(state)
        assert list(iterator) == list(range(12))
