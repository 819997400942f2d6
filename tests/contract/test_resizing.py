"""The number of workers never shows, however often it changes while the stream is read."""

import os
import signal
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings

from bushel.workers.engine import Engine
from tests.contract.pipelines import PIPELINES
from tests.contract.schedule import schedule
from tests.contract.test_schedules import Walk, draw, seeds
from tests.contract.test_schedules_of_workers import SOME
from tests.property.profile import tried
from tests.thorough import THOROUGH, rare_examples
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.processes import linux, workers_of
from tests.workers.streams import workers

__all__ = ["no_endless_wait", "no_process_left_behind"]

pytestmark = linux


def engines_of(iterator: Any) -> list[Engine]:
    """The engines of an iterator with workers."""
    owners = [getattr(wake, "__self__", None) for wake in iterator._stream.wakers]
    return [owner for owner in owners if isinstance(owner, Engine)]


class RestlessWalk(Walk):
    """Goes through a stream while workers come, go and die."""

    _deaths_left = 2

    def _take_some(self) -> None:
        way = self._chance.random()
        if way < 0.6:
            for engine in engines_of(self._iterator):
                engine.resize(self._chance.randint(1, 4), "the test says so")
        elif way < 0.75 and self._deaths_left and (pids := sorted(workers_of())):
            self._deaths_left -= 1
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(pids), signal.SIGKILL)
        super()._take_some()


@pytest.mark.parametrize("name", PIPELINES if THOROUGH else SOME)
@settings(tried, max_examples=rare_examples(1))
@given(seeds)
def test_the_same_while_workers_come_and_go(name: str, seed: int) -> None:
    drawn = draw(name, seed)
    ds = drawn.with_workers(workers(2))
    with schedule(drawn.seed):
        RestlessWalk(ds, drawn.expected, drawn.chance, notes=False).go(12)
