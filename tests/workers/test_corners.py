"""Corners that were found by attacking: each of them was wrong once."""

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset, transforms
from bushel.errors import ClosedError, WorkerError
from tests.nursery import one_nursery
from tests.patience import PATIENCE_SECONDS
from tests.workers.processes import (
    assert_gone,
    descendants,
    linux,
    told,
    wait_until,
    workers_of,
)
from tests.workers.streams import INLINE, make_loader, signed_events, with_workers

__all__ = ["one_nursery"]  # Who makes workers is not looked at here.


class _Draw(transforms.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return (*element, int(rng.integers(1000)))


def _own(records: Any) -> Any:
    for record in records:
        data = (record.data, record.metadata.record_key, record.metadata.index)
        yield bushel.Record(record.metadata, data)


@pytest.mark.parametrize("operations", [(_own,), (_own, _Draw())], ids=["alone", "and a draw"])
def test_an_own_operation_sees_what_the_sampler_said(operations: Any) -> None:
    plain = make_loader(*operations, workers=0)
    assert list(make_loader(*operations, workers=2)) == list(plain)


def _fail_at(*numbers: int) -> Any:
    def fail(element: Any) -> Any:
        if int(np.ravel(element)[0]) in numbers:
            raise ValueError(f"not {element}")
        return element

    return fail


@pytest.mark.parametrize("kind", ["failures on both sides", "all dropped before a failure"])
def test_states_around_failures_behind_a_cut(kind: str) -> None:
    ds = MapDataset.range(40).map(_fail_at(7, 9)).to_iter_dataset(INLINE)
    batches = ds.filter(lambda x: True).batch(1)
    if kind == "failures on both sides":
        steps = batches.random_map(lambda x, rng: x, seed=1).map(_fail_at(2, 4))
    else:
        steps = batches.filter(lambda batch: batch[0] > 9)
    with iter(with_workers(steps, 2)) as iterator:
        assert signed_events(iterator) == signed_events(iter(steps))


@linux
def test_a_class_of_the_main_module_keeps_what_the_program_put_in_it(tmp_path: Path) -> None:
    text = """
        import functools

        class Example:
            scale = 1
            def __init__(self, number):
                self.number = number

        @functools.cache
        def remembered(number):
            return number * 2

        ds = MapDataset.range(30).map(lambda n: Example(remembered(n))).to_iter_dataset()
        iterator = iter(ds.mp_prefetch(workers(1)))
        first = next(iterator)
        Example.scale = 100
        rest = list(iterator)
        tell(
            scale=Example.scale,
            same=all(type(example) is Example for example in [first, *rest]),
            numbers=[example.number for example in rest],
        )
    """
    assert told(tmp_path, text) == {"scale": 100, "same": True, "numbers": list(range(2, 60, 2))}


@linux
def test_a_worker_is_missed_though_what_it_started_lives_on() -> None:
    def leave_something_behind(number: int) -> int:
        if number == 0:
            subprocess.Popen(["sleep", "60"], close_fds=False)
        return os.getpid()

    before = descendants()
    with iter(with_workers(MapDataset.range(10**6).map(leave_something_behind), 1)) as iterator:
        victim = next(iterator)
        left = descendants(victim)
        os.kill(victim, signal.SIGKILL)
        assert wait_until(lambda: next(iterator) != victim)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert_gone(left | {victim})
    assert not descendants() - before


def test_closing_from_another_thread_ends_the_waiting() -> None:
    waiting = threading.Event()
    stuck = MapDataset.range(10).map(lambda n: n or threading.Event().wait())
    iterator = iter(with_workers(stuck, 1))
    caught: list[BaseException] = []

    def take() -> None:
        waiting.set()
        try:
            next(iterator)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    waiting.wait()
    iterator.close()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert [type(error) for error in caught] == [ClosedError]


class _EndsWhenPickled:
    def __reduce__(self) -> Any:
        os._exit(3)


def test_workers_that_end_for_no_known_reason_are_not_replaced_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bushel.workers.blame._MOST_TRIES", 3)
    ds = with_workers(MapDataset.range(3).map(lambda _: _EndsWhenPickled()), 1)
    with iter(ds) as iterator, pytest.raises(WorkerError, match=r"3 worker processes ended with"):
        next(iterator)


@linux
def test_iterators_that_are_never_advanced_leave_nothing() -> None:
    before = descendants()
    iterators = [iter(with_workers(MapDataset.range(5), 2)) for _ in range(3)]
    assert wait_until(lambda: len(workers_of()) == 6)
    del iterators
    assert wait_until(lambda: not descendants() - before)


@linux
def test_a_file_named_like_a_module_is_not_imported(tmp_path: Path) -> None:
    text = """
        sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
        for name in ("json", "socket", "pickle"):
            with open(f"{name}.py", "w") as file:
                file.write("raise RuntimeError('not this one')")
        tell(numbers=list(MapDataset.range(3).to_iter_dataset().mp_prefetch(workers(1))))
    """
    assert told(tmp_path, text) == {"numbers": [0, 1, 2]}
