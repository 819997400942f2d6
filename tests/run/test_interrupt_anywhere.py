"""Ctrl-C at any call within `next`, under any schedule: nothing is lost, and nothing comes twice.

Python looks for an interrupt where a function begins and where a generator goes on. That is
where these tests raise one.
"""

import inspect
import random
import sys
from functools import cache
from types import FrameType
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset, ReadOptions
from tests.contract.events import Event, freeze, freeze_error, freeze_state, run_events
from tests.contract.pipelines import INLINE, PIPELINES, Kit, stream_of
from tests.contract.schedule import schedule
from tests.thorough import THOROUGH

# Python's own locks are left broken if they are struck, and what finalizers and those who are
# told of a garbage collection (hypothesis, JAX) raise is ignored.
_NOT_WITHIN = ("hypothesis", "jax", "logging", "threading", "weakref", "_weakrefset")
# Other generators are forgotten before their end; what is raised then is ignored.
_GENERATORS = ("_made", "_changed")


@cache
def _is_left_alone(module: str) -> bool:
    return module.partition(".")[0] in _NOT_WITHIN


class Strike:
    """Raises KeyboardInterrupt at the n-th call, or at the next one that is not left alone.

    Without a number it counts the calls.
    """

    def __init__(self, number: int | None = None) -> None:
        self._number = number
        self.calls, self.is_over = 0, False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        self.calls += 1
        if self._number is not None and self.calls >= self._number and self._may_strike(frame):
            self.is_over = True
            raise KeyboardInterrupt

    def _may_strike(self, frame: FrameType) -> bool:
        code = frame.f_code
        if code.co_flags & inspect.CO_GENERATOR and code.co_name not in _GENERATORS:
            return False
        caller: FrameType | None = frame
        while caller is not None and caller.f_code is not Strike.next.__code__:
            if _is_left_alone(caller.f_globals.get("__name__", "")):
                return False
            caller = caller.f_back
        return True

    def next(self, iterator: Any) -> Any:
        if self.is_over:
            return next(iterator)
        before = sys.gettrace()
        sys.settrace(self)
        try:
            return next(iterator)
        finally:
            sys.settrace(before)


def _events(ds: Any, strike: Strike) -> list[Event]:
    events: list[Event] = []
    with iter(ds) as iterator:
        while True:
            before = freeze_state(iterator.get_state())
            try:
                what = freeze(strike.next(iterator))
            except StopIteration:
                assert freeze_state(iterator.get_state()) == before
                return events
            except KeyboardInterrupt:
                assert freeze_state(iterator.get_state()) == before
                continue
            except Exception as error:
                what = freeze_error(error)
            events.append((what, freeze_state(iterator.get_state())))


def _without_notes(events: list[Event]) -> list[Event]:
    # Those of batches count from the last time that the stream was asked again.
    return [(what[:3], state) for what, state in events]


def _check(ds: Any, expected: list[Event], seed: int, strikes: int) -> None:
    chance = random.Random(seed)
    with schedule(seed):
        unharmed = Strike()
        assert _without_notes(_events(ds, unharmed)) == expected
    for number in {1, *(chance.randint(1, unharmed.calls) for _ in range(strikes))}:
        with schedule(seed):
            strike = Strike(number)
            assert _without_notes(_events(ds, strike)) == expected, number


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline(name: str) -> None:
    _check_pipeline(name, ())


# What an operation does about a broken record is the same in its variants.
@pytest.mark.parametrize("name", [name for name in PIPELINES if THOROUGH or ":" not in name])
def test_every_pipeline_of_broken_records(name: str) -> None:
    _check_pipeline(name, (4, 5, 9))


def _check_pipeline(name: str, broken: tuple[int, ...]) -> None:
    expected = _without_notes(run_events(stream_of(name, Kit(broken=broken))))
    # The variants of an operation, and broken records, are read in one way each and struck once
    # less, and as often in both by `make test-all`.
    only = len(name) % 2 if (":" in name or broken) and not THOROUGH else None
    for seed, read in enumerate((INLINE, ReadOptions(2, 4))):
        if only in (None, seed):
            strikes = 2 if only is None else 1
            _check(stream_of(name, Kit("rows", broken, read)), expected, seed, strikes)


def _picky(batch: Any) -> Any:
    if batch[0] % 17 == 3:
        raise KeyError(f"{batch}")
    return batch if batch[0] % 5 else None


@pytest.mark.parametrize("seed", range(8 if THOROUGH else 3))
def test_batches_made_one_by_one(seed: int) -> None:
    ds = MapDataset.source(np.arange(80)).shuffle(seed=1).batch(2).map(_picky)
    ds = ds.random_map(lambda x, rng: x + rng.integers(9), seed=2)
    expected = _without_notes(run_events(ds.to_iter_dataset(INLINE)))
    _check(ds.to_iter_dataset(INLINE), expected, seed, 40)
