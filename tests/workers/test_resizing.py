"""Workers that are added and leave while a stream is read."""

import itertools
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset, MultiprocessingOptions
from bushel.errors import PlanError
from bushel.experimental import AutotuneParameter
from tests.contract.test_resizing import engines_of
from tests.nursery import one_nursery
from tests.workers import parts
from tests.workers.processes import (
    linux,
    run,
    wait_until,
    worker_pids,
    workers_of,
)
from tests.workers.streams import make_loader, pids_without_end, with_workers

__all__ = ["one_nursery"]  # Who makes workers is not looked at here.

pytestmark = linux


def _resize(iterator: Any, count: int) -> None:
    (engine,) = engines_of(iterator)
    engine.resize(count, "the test says so")


@contextmanager
def _numbers(count: int) -> Iterator[Any]:
    """Numbers from 0 on, one by one, that so many workers make."""
    with iter(with_workers(MapDataset.range(10**9).map(parts.same), count)) as iterator:
        yield iterator


def _take(iterator: Any, first: int, count: int) -> int:
    assert list(itertools.islice(iterator, count)) == list(range(first, first + count))
    return first + count


def _until(iterator: Any, at: int, condition: Any) -> int:
    """Takes numbers until a condition is true, and checks each."""

    assert wait_until(lambda: _took(iterator, at) or condition())
    return iterator.get_state()["next_index"]


def _took(iterator: Any, at: int) -> None:
    """Takes a few thousand numbers: what comes next is asked of the workers."""
    first = next(iterator)
    assert first >= at
    _take(iterator, first + 1, 3000)


def test_workers_are_added_and_leave() -> None:
    with iter(pids_without_end(1)) as iterator:
        (first,) = worker_pids(iterator, 1)
        _resize(iterator, 3)
        assert len(worker_pids(iterator, 3)) == 3
        _resize(iterator, 1)
        assert wait_until(lambda: list(itertools.islice(iterator, 3000)) and len(workers_of()) == 1)
        assert workers_of() == {first}, "those that came last leave first"


def test_nothing_is_left_open_of_workers_that_left() -> None:
    def files() -> int:
        # Not those in memory, which are as many as there are batches.
        opened = []
        for name in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):
                opened.append(os.readlink(f"/proc/self/fd/{name}"))
        return sum("pidfd" in name or "socket" in name or "pipe" in name for name in opened)

    with _numbers(1) as iterator:
        at = _take(iterator, 0, 1000)
        before = files()
        for _ in range(5):
            _resize(iterator, 4)
            at = _until(iterator, at, lambda: len(workers_of()) == 4)
            _resize(iterator, 1)
            at = _until(iterator, at, lambda: len(workers_of()) == 1)
        at = _until(iterator, at, lambda: files() <= before)


def test_workers_that_die_while_others_are_added() -> None:
    with _numbers(2) as iterator:
        at = _take(iterator, 0, 1000)
        for _ in range(4):
            _resize(iterator, 4)
            at = _take(iterator, at, 10)
            for pid in workers_of():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            at = _take(iterator, at, 2000)
            _resize(iterator, 1)
            at = _take(iterator, at, 2000)


def test_workers_that_are_killed_with_their_last_tasks() -> None:
    with _numbers(4) as iterator:
        at = _take(iterator, 0, 1000)
        pids = workers_of()
        _resize(iterator, 1)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        at = _take(iterator, at, 5000)
        assert len(workers_of()) == 1


def test_the_nursery_is_gone_when_workers_are_added() -> None:
    from tests.workers.processes import nurseries

    with _numbers(1) as iterator:
        at = _take(iterator, 0, 1000)
        for pid in nurseries():
            os.kill(pid, signal.SIGKILL)
        _resize(iterator, 3)
        at = _take(iterator, at, 5000)


def test_closed_while_workers_are_added() -> None:
    for delay in range(4):
        with _numbers(1) as iterator:
            at = _take(iterator, 0, 100)
            _resize(iterator, 4)
            _take(iterator, at, delay)
        assert wait_until(lambda: not workers_of())


def test_closed_by_another_thread_while_workers_are_added() -> None:
    with _numbers(1) as iterator:
        next(iterator)
        thread = threading.Timer(0.05, iterator.close)
        thread.start()
        with pytest.raises(bushel.errors.ClosedError):
            for count in itertools.count():
                _resize(iterator, 1 + count % 4)
                next(iterator)
        thread.join()


def test_interrupts_while_workers_come_and_go() -> None:
    def take_until_interrupted(at: int) -> None:
        timer.start()
        while True:
            assert next(iterator) == at
            at += 1

    with _numbers(1) as iterator:
        at = 0
        for number in range(6):
            at = _take(iterator, at, 3000)
            _resize(iterator, 1 + 3 * (number % 2))
            timer = threading.Timer(0.01, signal.raise_signal, [signal.SIGINT])
            with pytest.raises(KeyboardInterrupt):
                take_until_interrupted(at)
            timer.join()
            at = iterator.get_state()["next_index"]
        _take(iterator, at, 1000)


def test_workers_cannot_be_added(tmp_path: Path) -> None:
    """For want of files: those that there are go on, and it is said why."""
    program = """
        import logging, resource
        logging.basicConfig(level=logging.WARNING)
        ds = MapDataset.range(10**9).map(abs).to_iter_dataset().mp_prefetch(workers(1))
        iterator = iter(ds)
        first = [next(iterator) for _ in range(1000)]
        (engine,) = [wake.__self__ for wake in iterator._stream.wakers]
        used = max(map(int, os.listdir("/proc/self/fd")))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 50, hard))
        engine.resize(8, "the test says so")
        rest = [next(iterator) for _ in range(20000)]
        told = engine._pool[0].refusal
        tell(same=first + rest == list(range(21000)), size=engine.workers, why=told)
        iterator.close()
    """
    code, lines, err = run(tmp_path, program)
    assert not code, err
    (told,) = lines
    assert told["same"]
    assert told["size"] < 8
    assert "files open" in told["why"]
    assert "no worker could be added" in err


def test_a_worker_that_cannot_begin_is_not_added(caplog: pytest.LogCaptureFixture) -> None:
    def fail_later(index: int, count: int) -> None:
        if index:
            raise RuntimeError("only one of us")

    ds = MapDataset.range(10**9).map(parts.same).to_iter_dataset()
    ds = ds.mp_prefetch(MultiprocessingOptions(1), fail_later)
    with iter(ds) as iterator, caplog.at_level(logging.WARNING, "bushel"):
        at = _take(iterator, 0, 100)
        _resize(iterator, 2)
        (engine,) = engines_of(iterator)
        at = _until(iterator, at, lambda: engine.workers == 1)
        at = _until(iterator, at, lambda: len(workers_of()) == 1)
    assert "only one of us" in caplog.text


def test_a_forked_child_forgets_workers_that_leave() -> None:
    with _numbers(3) as iterator:
        at = _take(iterator, 0, 1000)
        _resize(iterator, 1)
        at = _take(iterator, at, 10)
        pid = os.fork()
        if not pid:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        _take(iterator, at, 5000)


def test_states_do_not_tell_the_number() -> None:
    ds = with_workers(MapDataset.range(1000).map(parts.same).batch(3), 1)
    with iter(ds) as one, iter(ds) as other:
        for _ in range(50):
            next(one)
        next(other)
        _resize(other, 3)
        for _ in range(49):
            next(other)
        assert one.get_state() == other.get_state()


@pytest.mark.parametrize("number", ["auto", AutotuneParameter(1, 3)])
def test_tuned_workers_give_the_same_stream(number: Any) -> None:
    ds = MapDataset.range(500).map(parts.square).batch(7)
    expected = [batch.tolist() for batch in ds]
    options = MultiprocessingOptions(number, per_worker_buffer_size="auto", ram_budget_mb=500)
    for tuned in (
        ds.to_iter_dataset().mp_prefetch(options),
        make_loader(
            bushel.transforms.Batch(7),
            workers=number,
            worker_buffer_size="auto",
            count=500,
            sampler=bushel.IndexSampler(500, num_epochs=1),
            source=MapDataset.range(500).map(parts.square),
        ),
    ):
        assert [batch.tolist() for batch in tuned] == expected


def test_a_tuned_number_is_shown() -> None:
    ds = MapDataset.range(5).map(abs).to_iter_dataset()
    ds = ds.mp_prefetch(MultiprocessingOptions(num_workers="auto"))
    told = str(ds.explain())
    assert "mp_prefetch(num_workers=auto)" in told and "workers (auto)" in told


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: MultiprocessingOptions("many"), TypeError, 'must be an integer: .*"auto"'),
        (lambda: MultiprocessingOptions("auto", ram_budget_mb=0), PlanError, "above 0"),
        (lambda: AutotuneParameter(0), PlanError, "at least 1"),
        (lambda: AutotuneParameter(4, 2), PlanError, "leaves no number"),
        (lambda: AutotuneParameter(1.5), TypeError, "must be an integer"),
    ],
)
def test_bounds_that_make_no_sense(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
