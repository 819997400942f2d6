"""Threads live as long as somebody listens, and no longer."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset, ReadOptions
from bushel.errors import ClosedError
from bushel.experimental import ThreadPrefetchIterDataset
from tests.contract.events import events_of, run_events
from tests.patience import PATIENCE_SECONDS


def _by_reading(function: Any = abs, size: int = 10**9) -> Any:
    return MapDataset.range(size).map(function).to_iter_dataset(ReadOptions(3, 30))


def _by_prefetching(function: Any = abs, size: int = 10**9) -> Any:
    inline = MapDataset.range(size).map(function).to_iter_dataset(ReadOptions(0, 0))
    return ThreadPrefetchIterDataset(inline, prefetch_buffer_size=30)


def _by_both(function: Any = abs, size: int = 10**9) -> Any:
    return ThreadPrefetchIterDataset(_by_reading(function, size), prefetch_buffer_size=30).batch(2)


every_way = pytest.mark.parametrize("make", [_by_reading, _by_prefetching, _by_both])


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("bushel")]


def _assert_all_end() -> None:
    for thread in _threads():
        thread.join(PATIENCE_SECONDS)
    assert not _threads()


def _started(make: Any) -> Any:
    iterator = iter(make())
    iterator.start_prefetch()
    next(iterator)
    assert _threads()
    return iterator


@every_way
def test_close(make: Any) -> None:
    iterator = _started(make)
    iterator.close()
    assert not _threads()
    with pytest.raises(ClosedError, match="was closed and cannot go on"):
        next(iterator)
    assert isinstance(ClosedError("x"), ValueError)


@every_way
def test_leaving_a_with_block(make: Any) -> None:
    with _started(make):
        pass
    assert not _threads()
    with pytest.raises(KeyError, match="training"), _started(make):
        raise KeyError("training")
    assert not _threads()


@every_way
def test_garbage(make: Any) -> None:
    iterator = _started(make)
    gone = weakref.ref(iterator)
    del iterator
    # No cycles: counting references is enough.
    assert gone() is None
    _assert_all_end()


@every_way
def test_break(make: Any) -> None:
    def train() -> None:
        iterator = iter(make())
        iterator.start_prefetch()
        for _ in iterator:
            break

    train()
    _assert_all_end()


@every_way
def test_an_exception_in_the_loop(make: Any) -> None:
    def train() -> None:
        iterator = iter(make())
        iterator.start_prefetch()
        for _ in iterator:
            raise KeyError("training")

    with pytest.raises(KeyError, match="training"):
        train()
    gc.collect()
    _assert_all_end()


@every_way
def test_an_exception_of_the_function(make: Any) -> None:
    def fail(number: int) -> int:
        if number == 50:
            raise KeyError("decode")
        return number

    def train() -> None:
        iterator = iter(make(fail))
        iterator.start_prefetch()
        for _ in iterator:
            pass

    with pytest.raises(KeyError, match="decode"):
        train()
    gc.collect()
    _assert_all_end()


@every_way
def test_the_end_of_the_data(make: Any) -> None:
    iterator = iter(make(size=200))
    iterator.start_prefetch()
    assert len(list(iterator)) in (200, 100)
    assert next(iterator, None) is None
    _assert_all_end()
    iterator.close()


@every_way
def test_forgotten_without_having_been_used(make: Any) -> None:
    iterator = iter(make())
    iterator.start_prefetch()
    del iterator
    _assert_all_end()


@every_way
def test_two_iterators_in_turn(make: Any) -> None:
    expected = run_events(make(size=60), threaded=True)
    with iter(make(size=60)) as one, iter(make(size=60)) as other:
        one.start_prefetch()
        other.start_prefetch()
        taken: list[Any] = []
        for number in range(len(expected)):
            taken.append(str(next(one)))
            assert str(next(other)) == taken[number]
        assert next(one, None) is next(other, None) is None


@every_way
def test_used_from_another_thread(make: Any) -> None:
    expected = run_events(make(size=60), threaded=True)
    iterator = iter(make(size=60))
    iterator.start_prefetch()
    next(iterator)
    results: list[Any] = []
    user = threading.Thread(target=lambda: results.append(events_of(iterator)))
    user.start()
    user.join(PATIENCE_SECONDS)
    assert results == [expected[1:]]
    iterator.close()


def _run(program: str) -> subprocess.CompletedProcess[str]:
    head = """
        import os, sys, threading
        from bushel import MapDataset, ReadOptions
        from bushel.experimental import ThreadPrefetchIterDataset
    """
    text = textwrap.dedent(head) + textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(bushel.__file__).parent.parent)},
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.parametrize("prefetch", [False, True], ids=["reading", "prefetching"])
def test_an_interpreter_exits_while_threads_are_busy(prefetch: bool) -> None:
    # The threads wait for what never comes: nobody may wait for them.
    done = _run(f"""
        never = threading.Event()
        def read(number):
            if number > 20:
                never.wait()
            return number
        ds = MapDataset.range(10**6).map(read).to_iter_dataset(ReadOptions(4, 100))
        if {prefetch}:
            ds = ThreadPrefetchIterDataset(ds, prefetch_buffer_size=10)
        iterator = iter(ds)
        iterator.start_prefetch()
        print([next(iterator) for _ in range(3)])
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2]\n", "")


def test_an_interpreter_exits_with_the_error_of_the_program() -> None:
    done = _run("""
        iterator = iter(MapDataset.range(10**6).to_iter_dataset(ReadOptions(4, 100)))
        iterator.start_prefetch()
        next(iterator)
        sys.exit(3)
    """)
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_is_told_to_make_its_own_iterator() -> None:
    done = _run("""
        import warnings
        warnings.simplefilter("ignore")
        iterator = iter(MapDataset.range(10**6).to_iter_dataset(ReadOptions(4, 8)))
        iterator.start_prefetch()
        first = next(iterator)
        child = os.fork()
        if not child:
            try:
                for _ in range(100):
                    next(iterator)
            except RuntimeError as error:
                print(type(error).__name__, str(error)[:40], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(sum(next(iterator) for _ in range(100)))
    """)
    assert (done.returncode, done.stderr) == (0, "")
    told, total = done.stdout.splitlines()
    assert told == "ForkedError this iterator was made before a fork, an"
    assert int(total) == sum(range(1, 101))
