"""A worker that dies is replaced, its work is done again, and the stream does not change."""

import ctypes
import logging
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset
from bushel.errors import FatalElementError, WorkerError
from bushel.experimental import FlatMapIterDataset
from bushel.workers import blame
from tests.nursery import one_nursery
from tests.thorough import THOROUGH, usually
from tests.workers import parts
from tests.workers.processes import (
    assert_gone,
    descendants,
    is_alive,
    linux,
    nurseries,
    take_until,
    wait_until,
    worker_pids,
    workers_of,
)
from tests.workers.streams import INLINE, make_loader, pids_without_end, signed_events, with_workers

__all__ = ["one_nursery"]  # Who makes workers is not looked at here.

pytestmark = linux


def _die_by(number: int) -> None:
    os.kill(os.getpid(), number)


def _crash() -> None:
    ctypes.string_at(0)


DEATHS: dict[str, tuple[Callable[[], Any], str]] = {
    "SIGKILL": (lambda: _die_by(signal.SIGKILL), "SIGKILL"),
    "SIGSEGV": (lambda: _die_by(signal.SIGSEGV), "SIGSEGV"),
    "a null pointer": (_crash, "SIGSEGV"),
    "abort": (os.abort, "SIGABRT"),
    "exit code 3": (lambda: os._exit(3), "exit code 3"),
    "exit code 0": (lambda: os._exit(0), "exit code 0"),
}


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("bushel") and record.levelno == logging.WARNING
    ]


def _dying_at(position: int, die: Callable[[], Any], once: parts.Once) -> Any:
    def die_once(index: int, element: Any) -> Any:
        if index == position and once():
            die()
        return element

    return (
        MapDataset.range(90)
        .shuffle(seed=1)
        .random_map(parts.draw, seed=2)
        .map_with_index(die_once)
        .to_iter_dataset(INLINE)
        .filter(lambda pair: pair[0] % 3)
        .batch(4)
    )


@pytest.mark.parametrize("name", usually(DEATHS, "SIGKILL", "exit code 0"))
def test_a_death_does_not_show(name: str, tmp_path: Path, caplog: Any) -> None:
    die, exit_text = DEATHS[name]
    once = parts.Once(tmp_path / "died")
    ds = _dying_at(41, die, once)
    got = signed_events(iter(with_workers(ds, 2)))
    assert not once(), "nobody died"
    assert got == signed_events(iter(ds))
    (warning,) = _warnings(caplog)
    assert str(once.pid()) in warning
    assert exit_text in warning
    assert re.search(r"position", warning), warning
    assert re.search(r"\d", warning.replace(str(once.pid()), "").replace(exit_text, ""))


@pytest.mark.parametrize(
    "step",
    usually(
        ["before a cut", "after a cut", "in a loader", "in a source"], "after a cut", "in a source"
    ),
)
def test_wherever_it_happens(step: str, tmp_path: Path) -> None:
    once = parts.Once(tmp_path / "died")

    def fatal(element: Any) -> Any:
        if np.any(np.asarray(element) == 47) and once():
            _die_by(signal.SIGKILL)
        return element

    class Fatal(bushel.transforms.Map):
        def map(self, element: Any) -> Any:
            return fatal(element)

    class Source:
        def __len__(self) -> int:
            return 60

        def __getitem__(self, key: int) -> int:
            return int(fatal(key))

        def __repr__(self) -> str:
            return "Source()"

    def make(count: int) -> Any:
        numbers = MapDataset.range(60).to_iter_dataset(INLINE)
        if step == "before a cut":
            return with_workers(numbers.map(fatal).filter(parts.is_odd).batch(4), count)
        if step == "after a cut":
            return with_workers(numbers.filter(parts.is_odd).batch(4).map(fatal), count)
        if step == "in a loader":
            return make_loader(parts.NotThird(), Fatal(), bushel.Batch(4), workers=count)
        return make_loader(parts.NotThird(), bushel.Batch(4), workers=count, source=Source())

    got = signed_events(iter(make(2)))
    assert not once(), "nobody died"
    assert got == signed_events(iter(make(0)))


def test_dozens_of_deaths() -> None:
    """Some in the middle of their work, some while they wait, some together.

    How many elements pass meanwhile depends on how soon there is somebody to kill again.
    """

    def work(number: int, rng: np.random.Generator) -> Any:
        return number, rng.random(2000).cumsum()

    def make(count: int) -> Any:
        ds = MapDataset.range(600).shuffle(seed=4).repeat().random_map(work, seed=3)
        return with_workers(ds.to_iter_dataset(INLINE).filter(lambda pair: pair[0] % 4), count)

    rng = np.random.default_rng(7)
    kills = 0
    with iter(make(0)) as plain, iter(make(3)) as iterator:
        for taken, (number, values) in enumerate(iterator):
            wanted_number, wanted_values = next(plain)
            assert number == wanted_number
            assert (values == wanted_values).all()
            assert iterator.get_state() == plain.get_state()
            if kills >= (24 if THOROUGH else 12) and taken >= 60:
                break
            if taken % 15 == 0 or rng.random() < 0.04:
                # Now and then with the process that they come from.
                nursery = sorted(nurseries()) if taken % 60 == 0 else []
                alive = sorted(filter(is_alive, workers_of()))
                victims = rng.permutation(alive)[: 1 if taken % 4 else 3].tolist()
                for pid in nursery + victims:
                    with suppress(ProcessLookupError):  # One that was killed just before.
                        os.kill(pid, signal.SIGKILL)
                        kills += 1


def test_deaths_of_all_workers_before_the_first_element() -> None:
    before = descendants()
    with iter(with_workers(MapDataset.range(50).map(parts.square), 2)) as iterator:
        iterator.start_prefetch()
        assert wait_until(lambda: descendants() - before)
        for pid in descendants() - before:
            os.kill(pid, signal.SIGKILL)
        assert list(iterator) == [n * n for n in range(50)]


def test_deaths_between_epochs() -> None:
    loader = make_loader(parts.Double(), bushel.Batch(7), workers=2)
    before = descendants()
    first = signed_events(iter(loader))
    pids = descendants() - before
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert_gone(pids)
    assert signed_events(iter(loader)) == first


def test_a_worker_that_took_its_place_is_prepared_as_it_was() -> None:
    ds = MapDataset.range(10**9).map(parts.who_am_i).to_iter_dataset(INLINE)
    ds = ds.mp_prefetch(bushel.MultiprocessingOptions(num_workers=1), parts.remember_start)
    with iter(ds) as iterator:
        ((index, count, pid),) = next(iterator)
        assert (index, count) == (0, 1)
        os.kill(pid, signal.SIGKILL)
        take_until(iterator, lambda started: started[0][2] != pid)
        ((index, count, _),) = next(iterator)
        assert (index, count) == (0, 1)


def test_a_new_worker_for_each_dead_one() -> None:
    with iter(pids_without_end(2)) as iterator:
        alive = worker_pids(iterator, 2)
        for _ in range(3):
            victim = min(alive)
            os.kill(victim, signal.SIGKILL)
            assert_gone({victim})
            # What the dead one had finished may still come, and then there are two again.
            seen: set[int] = set()
            take_until(
                iterator,
                lambda pid, seen=seen, victim=victim: seen.add(pid) or len(seen - {victim}) == 2,
            )
            alive = seen - {victim}
            assert all(map(is_alive, alive))
    assert_gone(alive)


def test_an_interrupt_while_a_worker_is_replaced(tmp_path: Path) -> None:
    """Its tasks are done all the same."""
    once = parts.Once(tmp_path / "interrupted")

    class Interrupt(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if once():
                raise KeyboardInterrupt

    interrupt = Interrupt()
    taken: list[int] = []
    ds = MapDataset.range(300).map(lambda number: (number, os.getpid()))
    logging.getLogger("bushel").addHandler(interrupt)
    try:
        with iter(with_workers(ds, 2)) as iterator:
            number, victim = next(iterator)
            taken.append(number)
            os.kill(victim, signal.SIGKILL)
            with pytest.raises(KeyboardInterrupt):
                taken.extend(number for number, _ in iterator)
            taken += [number for number, _ in iterator]
    finally:
        logging.getLogger("bushel").removeHandler(interrupt)
    assert taken == list(range(300))


# What kills every worker.

FATAL_KEY = 777


def _fatal(key: int) -> int:
    if key == FATAL_KEY:
        _die_by(signal.SIGKILL)
    return key


class Fatal(bushel.transforms.Map):
    def map(self, element: Any) -> Any:
        return _fatal(element)


def _fatal_dataset() -> tuple[Any, int]:
    order = MapDataset.source(range(1000)).shuffle(seed=3)
    return with_workers(order.map(_fatal), 2), list(order).index(FATAL_KEY)


def _fatal_loader() -> tuple[Any, int]:
    sampler = bushel.IndexSampler(1000, shuffle=True, num_epochs=1, seed=2)
    position = [sampler[step].record_key for step in range(1000)].index(FATAL_KEY)
    loader = make_loader(Fatal(), bushel.Batch(8), workers=2, count=1000, sampler=sampler)
    return loader, position


@pytest.mark.parametrize("make", [_fatal_dataset, _fatal_loader])
def test_a_record_that_kills_every_worker_is_named(make: Any, caplog: Any) -> None:
    ds, position = make()
    before = descendants()
    iterator = iter(ds)
    with pytest.raises(WorkerError) as caught:
        for _ in iterator:
            pass
    iterator.close()
    assert wait_until(lambda: not descendants() - before)
    assert isinstance(caught.value, RuntimeError)
    text = str(caught.value)
    assert re.search(rf"\b{FATAL_KEY}\b", text), text
    assert re.search(rf"\b{position}\b", text), text
    assert "SIGKILL" in text
    assert len(_warnings(caplog)) >= 2


def test_a_function_that_closes_all_files_is_given_up_soon(caplog: Any) -> None:
    """What it closes, workers need to hand over what they made: there is no step to blame."""

    def close_all(number: int) -> int:
        if number == 5:
            os.closerange(3, 200)
        return number

    with iter(with_workers(MapDataset.range(8).map(close_all), 1)) as iterator:
        assert [next(iterator) for _ in range(5)] == list(range(5))
        with pytest.raises(WorkerError, match=r"positions 5 .* close files that are not theirs"):
            next(iterator)
    # Four ends in a row are too many. On a busy machine one or the other is seen before the step is
    # over, and they are counted anew; but a task is not tried as often as where nobody is to blame.
    assert len(_warnings(caplog)) < blame._MOST_TRIES // 2


def test_records_that_kill_once_each_are_none_that_kill_every_worker(tmp_path: Path) -> None:
    def fatal_once(number: int) -> int:
        if number % 17 == 0 and parts.Once(tmp_path / str(number))():
            _die_by(signal.SIGKILL)
        return number

    assert list(with_workers(MapDataset.range(80).map(fatal_once), 2)) == list(range(80))
    assert len(list(tmp_path.iterdir())) == 5


class FatalExpand(bushel.transforms.FlatMap):
    max_fan_out = 1

    def flat_map(self, element: Any) -> Any:
        return [_fatal(element)]


class FatalSource:
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        return _fatal(index)


FATAL_STEPS: dict[str, Any] = {
    "map": MapDataset.range(1000).map(_fatal).to_iter_dataset(INLINE),
    "filter": MapDataset.range(1, 1000).to_iter_dataset(INLINE).filter(_fatal).batch(8),
    "flat_map": FlatMapIterDataset(MapDataset.range(1000).to_iter_dataset(INLINE), FatalExpand()),
    "source": MapDataset.source(FatalSource()).to_iter_dataset(INLINE),
}


@pytest.mark.parametrize("where", usually(FATAL_STEPS, "map", "filter"))
def test_what_comes_before_it_is_handed_out_first(where: str) -> None:
    """Though it was made by the same worker, in one go with the element that ended it."""
    before = 97 if where == "filter" else FATAL_KEY
    with iter(with_workers(FATAL_STEPS[where], 1)) as iterator:
        assert len([next(iterator) for _ in range(before)]) == before
        state = iterator.get_state()
        for _ in range(2 if where == "map" else 1):  # It is tried again.
            with pytest.raises(FatalElementError, match="Look at this element"):
                next(iterator)
            assert iterator.get_state() == state


def test_what_ended_workers_is_no_bad_record() -> None:
    """It may have been a want of memory: nothing that one would pass over without a word."""
    ds = MapDataset.range(800).map(_fatal).to_iter_dataset(INLINE).on_error("skip")
    with iter(with_workers(ds, 1)) as iterator, pytest.raises(FatalElementError):
        list(iterator)
