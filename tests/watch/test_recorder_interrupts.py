"""Interrupts while a step is written down: also when another one comes before the first is over."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset
from bushel.watch.recording import read_recording

# Generators that are closed may be interrupted, too, and nobody hears of it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ELEMENTS = 12
STEP = 7


class Interrupts:
    """Interrupts where a function is called, which is where signals are dealt with.

    Once at a call of some number, and once more so many calls later. (Python takes a hook away in
    which an exception is raised, and has two.)
    """

    def __init__(self, first: int, more: int) -> None:
        self.first, self.more = first, more
        self.calls = self.raised = 0

    def tracing(self, frame: Any, event: str, argument: Any) -> Any:
        if self._is_ours(frame) and self.raised == 0:
            self.calls += 1
            if self.calls == self.first:
                self.raised, self.calls = 1, 0
                raise KeyboardInterrupt
        return None

    def profiling(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call" and self._is_ours(frame) and self.raised == 1:
            self.calls += 1
            if self.calls == self.more:
                self.raised = 2
                raise KeyboardInterrupt

    @staticmethod
    def _is_ours(frame: Any) -> bool:
        return "bushel" in frame.f_globals.get("__name__", "")

    @contextmanager
    def on(self) -> Iterator[None]:
        before = sys.gettrace(), sys.getprofile()
        sys.setprofile(self.profiling)
        sys.settrace(self.tracing)
        try:
            yield
        finally:
            sys.settrace(before[0])
            sys.setprofile(before[1])


def elements_interrupted(iterator: Any, interrupts: Interrupts) -> list[int]:
    """What comes out while the interrupts are on, from the element before the step."""
    found = [int(next(iterator)) for _ in range(STEP)]
    while True:
        state = None
        try:
            with interrupts.on():
                for element in iterator:
                    found.append(int(element))
                    break
                else:
                    return found
        except KeyboardInterrupt:
            state = iterator.get_state()
            assert state["next_index"] == len(found)


@pytest.mark.parametrize("more", [1, 2, 3, 5, 8, 13, 21])
def test_two_interrupts_lose_no_element(more: int, tmp_path: Path) -> None:
    dataset = MapDataset.range(ELEMENTS).to_iter_dataset(bushel.ReadOptions(0, 0))
    most = 0
    for first in range(1, 400):
        interrupts = Interrupts(first, more)
        path = tmp_path / f"{first}.bushel"
        with bushel.iterate(dataset, stats=False, record=path, every=STEP) as iterator:
            assert elements_interrupted(iterator, interrupts) == list(range(ELEMENTS)), first
        steps = {entry["step"] for entry in read_recording(path).steps}
        assert steps == {0, STEP}
        if interrupts.raised == 2:
            most = first
        if not interrupts.raised:
            break
    assert most > 20  # Of the calls that it takes to write a step down.


def test_an_interrupt_while_a_state_is_set_leaves_the_place_before() -> None:
    dataset = MapDataset.range(ELEMENTS).to_iter_dataset(bushel.ReadOptions(0, 0))
    saved = iter(dataset)
    next(saved)
    state = saved.get_state()
    for first in range(1, 400):
        interrupts = Interrupts(first, 1)
        with iter(dataset) as iterator:
            assert [int(next(iterator)) for _ in range(STEP)] == list(range(STEP))
            try:
                with interrupts.on():
                    iterator.set_state(state)
            except KeyboardInterrupt:
                assert iterator.get_state()["next_index"] in (STEP, 1)
            rest = [int(element) for element in iterator]
            assert rest in (list(range(STEP, ELEMENTS)), list(range(1, ELEMENTS))), first
        if not interrupts.raised:
            return
    raise AssertionError


def test_a_storm_of_signals_loses_no_element(tmp_path: Path) -> None:
    within = False

    def interrupt(number: int, frame: Any) -> None:
        if within and "bushel" in frame.f_globals.get("__name__", ""):
            raise KeyboardInterrupt

    dataset = MapDataset.range(1_000).to_iter_dataset(bushel.ReadOptions(0, 0))
    found, over = [], False
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with bushel.iterate(dataset, record=tmp_path / "storm.bushel", every=1) as iterator:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            while not over:
                try:
                    within = True
                    for element in iterator:
                        found.append(int(element))
                    within, over = False, True  # One while it is closed would end the tests.
                except KeyboardInterrupt:
                    within = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found == list(range(1_000))
