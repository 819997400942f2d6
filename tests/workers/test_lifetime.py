"""Workers live as long as somebody may want them, and leave nothing behind."""

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset
from bushel.errors import ClosedError
from tests.thorough import THOROUGH
from tests.workers import parts
from tests.workers.processes import (
    assert_gone,
    descendants,
    is_alive,
    linux,
    wait_until,
    workers_of,
)
from tests.workers.processes import worker_pids as pids_of
from tests.workers.streams import INLINE, make_loader, pids_without_end, with_workers

pytestmark = linux

# How often workers are started and ended to see what is left of them.
_ROUNDS = 100 if THOROUGH else 12


class Pid(bushel.transforms.Map):
    def map(self, element: Any) -> int:
        return os.getpid()


def _loader(count: int = 60) -> Any:
    return make_loader(Pid(), workers=2, count=count)


def _started() -> tuple[Any, set[int]]:
    iterator = iter(pids_without_end(2))
    return iterator, pids_of(iterator, 2)


# The end of an iterator.


def test_close() -> None:
    iterator, pids = _started()
    state = iterator.get_state()
    iterator.close()
    assert_gone(pids)
    iterator.close()
    assert iterator.get_state() == state
    with pytest.raises(ClosedError, match="closed"):
        next(iterator)


def test_leaving_a_with_block() -> None:
    iterator, pids = _started()
    with iterator:
        assert all(map(is_alive, pids))
    assert_gone(pids)
    iterator, pids = _started()
    with pytest.raises(KeyError, match="training"), iterator:
        raise KeyError("training")
    assert_gone(pids)


def test_garbage() -> None:
    iterator, pids = _started()
    gone = weakref.ref(iterator)
    del iterator
    # No cycles: counting references is enough.
    assert gone() is None
    assert_gone(pids)


def test_break_and_an_exception_in_the_loop() -> None:
    pids: set[int] = set()

    def train(fail: bool) -> None:
        for pid in pids_without_end(2):
            pids.add(pid)
            if len(pids) % 2 == 0:
                if fail:
                    raise KeyError("training")
                break

    train(fail=False)
    with pytest.raises(KeyError, match="training"):
        train(fail=True)
    assert_gone(pids)


def test_forgotten_without_having_been_used() -> None:
    before = descendants()
    iterator = iter(pids_without_end(2))
    iterator.start_prefetch()
    assert wait_until(lambda: descendants() - before)
    pids = descendants() - before
    del iterator
    assert_gone(pids)


def test_closed_while_the_workers_are_stuck(tmp_path: Path) -> None:
    """In the user's code, which may never return, or stopped altogether."""

    def get_stuck(number: int) -> int:
        (tmp_path / str(os.getpid())).touch()
        if number % 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        threading.Event().wait()
        return number

    iterator = iter(with_workers(MapDataset.range(10**6).map(get_stuck), 2))
    iterator.start_prefetch()
    assert wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    iterator.close()
    assert_gone({int(file.name) for file in tmp_path.iterdir()})


def test_an_iterator_that_has_ended_can_be_restored() -> None:
    iterator = iter(_loader())
    start = iterator.get_state()
    assert len(list(iterator)) == 60
    assert next(iterator, None) is None
    iterator.set_state(start)
    assert len(list(iterator)) == 60


# From epoch to epoch.


def test_the_next_epoch_finds_the_workers_of_the_last() -> None:
    loader = _loader(2000)
    before = descendants()
    first = set(loader)
    pids = descendants() - before
    assert len(workers_of()) == 2
    assert first <= workers_of() <= pids
    for _ in range(3):
        assert set(loader) <= pids
        assert descendants() - before == pids
    del loader
    gc.collect()
    assert_gone(pids)


def test_a_stream_keeps_its_workers_too() -> None:
    ds = with_workers(MapDataset.range(2000).map(lambda _: os.getpid()), 2)
    before = descendants()
    assert len(list(ds)) == 2000
    pids = descendants() - before
    for _ in range(3):
        assert set(ds) <= pids
    assert descendants() - before == pids
    del ds
    gc.collect()
    assert_gone(pids)


def test_after_a_close_they_are_started_again() -> None:
    loader = make_loader(Pid(), workers=1, sampler=bushel.IndexSampler(60))
    seen = []
    for _ in range(2):
        with iter(loader) as iterator:
            seen.append(next(iterator))
        assert_gone({seen[-1]})
    assert seen[0] != seen[1]


def test_one_iterator_ends_and_another_goes_on() -> None:
    ds = MapDataset.range(10**9).map(lambda number: (number, os.getpid()))
    stream = with_workers(ds, 2)
    one, other = iter(stream), iter(stream)
    assert next(one)[0] == next(other)[0] == 0
    one.close()
    assert [next(other)[0] for _ in range(300)] == list(range(1, 301))
    third = iter(stream)
    del other
    assert [next(third)[0] for _ in range(300)] == list(range(300))
    third.close()


def test_elements_outlive_the_workers() -> None:
    ds = MapDataset.range(40).map(lambda n: bushel.Record(n, bytes([n]) * 100_000))
    with iter(with_workers(ds, 2)) as iterator:
        kept = list(iterator)
    gc.collect()
    assert [record.data for record in kept] == [bytes([n]) * 100_000 for n in range(40)]


# What is left.


def _held() -> dict[str, set[Any]]:
    """Files, threads and processes, each as itself.

    How many there are says little: what tests before had left may go away at any time.
    """
    gc.collect()
    files = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # The one that this list was read from.
            files.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return {"files": files, "threads": set(threading.enumerate()), "processes": descendants()}


def _new_since(before: dict[str, set[Any]]) -> dict[str, set[Any]]:
    return {what: new for what, held in _held().items() if (new := held - before[what])}


def _mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def _closed() -> None:
    with iter(with_workers(MapDataset.range(40).map(parts.big), 1)) as iterator:
        for _ in range(3):
            next(iterator)


def _exhausted() -> None:
    assert len(list(with_workers(MapDataset.range(20).map(parts.big), 1))) == 20


def _killed() -> None:
    with iter(pids_without_end(1)) as iterator:
        os.kill(next(iterator), signal.SIGKILL)
        next(iterator)


@pytest.mark.parametrize("use", [_closed, _exhausted, _killed])
def test_many_starts_leave_nothing(use: Callable[[], None]) -> None:
    for _ in range(2):
        use()  # What is made once and kept has been made after this.
    before, mappings = _held(), _mappings()
    rounds = _ROUNDS if use is _closed else _ROUNDS // 4
    for _ in range(rounds):
        use()
    wait_until(lambda: not _new_since(before))
    assert not _new_since(before)
    # Python maps and unmaps its own memory as it goes; what leaks once a round shows.
    assert _mappings() < mappings + rounds / 2


def _settles(rounds: Callable[[], None]) -> bool:
    """Whether some rounds leave no more than there was, sooner or later.

    As many slots come into being as were ever on their way at once, which a busy machine
    finds out bit by bit. What is left behind each time never ends.
    """
    for _ in range(40):
        before, mappings = _held(), _mappings()
        rounds()
        # Not for long: where slots have come into being, that is what the next time finds.
        settled = wait_until(lambda before=before: not _new_since(before), 0.3)
        if settled and _mappings() < mappings + _ROUNDS / 2:
            return True
    return False


def test_many_epochs_leave_nothing() -> None:
    ds = with_workers(MapDataset.range(40).map(parts.big).to_iter_dataset(INLINE), 2)

    def epochs() -> None:
        for _ in range(_ROUNDS):
            assert len(list(ds)) == 40

    assert _settles(epochs)


def test_going_back_and_forth_leaves_nothing() -> None:
    with iter(with_workers(MapDataset.range(1000).map(parts.big), 2)) as iterator:
        start = iterator.get_state()

        def go_back() -> None:
            for _ in range(_ROUNDS):
                iterator.set_state(start)
                assert next(iterator)["n"] == 0

        assert _settles(go_back)
