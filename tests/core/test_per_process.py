"""What a process keeps: made once, within a bound, never that of another process."""

import os
import pickle
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.core.per_process import LastUsed, PerProcess, ProcessLock
from tests.property.profile import tried


class Doubles(PerProcess[int, tuple[int, int]]):
    """Pairs of a number and its double, which notes what it made."""

    def __init__(self, most: float = float("inf")) -> None:
        super().__init__(most)
        self.made: list[int] = []

    def _make(self, key: int) -> tuple[int, int]:
        self.made.append(key)
        return key, 2 * key

    def _weigh(self, value: tuple[int, int]) -> float:
        return value[0]


class Slow(PerProcess[int, object]):
    """Things that are made when somebody says so."""

    def __init__(self, make: Callable[[int], object]) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.calls = 0
        self._function = make

    def _make(self, key: int) -> object:
        self.calls += 1
        self.begun.set()
        self.go_on.wait()
        return self._function(key)


@tried
@given(keys=st.lists(st.integers(1, 9)), most=st.integers(1, 20))
def test_the_last_used_are_kept(keys: list[int], most: int) -> None:
    doubles = Doubles(most)
    expected: list[int] = []  # The last one used is the last one.
    for key in keys:
        made = len(doubles.made)
        assert doubles.get(key) == (key, 2 * key)
        assert (len(doubles.made) == made) == (key in expected)
        expected = [other for other in expected if other != key] + [key]
        while sum(expected) > most and len(expected) > 1:
            del expected[0]
    assert [key for key in range(1, 10) if doubles.find(key) is not None] == sorted(expected)


def _in_threads(count: int, call: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_one_thread_makes_and_others_wait() -> None:
    slow = Slow(lambda key: [key])
    found: list[object] = []
    threads = _in_threads(4, lambda: found.append(slow.get(1)))
    slow.begun.wait()
    assert slow.is_coming(1) and not slow.is_coming(2)
    slow.go_on.set()
    for thread in threads:
        thread.join()
    assert slow.calls == 1
    assert len(found) == 4 and all(thing is found[0] for thing in found)


def test_what_fails_is_tried_again() -> None:
    def fail(key: int) -> object:
        raise OSError(f"no {key}")

    slow = Slow(fail)
    slow.go_on.set()
    for _ in range(2):
        with pytest.raises(OSError, match="no 3"):
            slow.get(3)
    assert slow.calls == 2 and not slow.is_coming(3)


def test_only_the_same_thing_is_discarded() -> None:
    kept = LastUsed[str, list[int]]()
    first, other = [1], [1]
    kept.keep("a", first)
    kept.discard("a", other)
    assert kept.find("a") is first
    kept.discard("a", first)
    assert kept.find("a") is None


def _in_a_child(answer: Callable[[], bool]) -> bool:
    """Whether a forked child gives the right answer."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if answer() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_child_makes_its_own() -> None:
    doubles = Doubles()
    doubles.get(1)
    assert _in_a_child(lambda: doubles.find(1) is None and doubles.get(1) == (1, 2))
    assert doubles.find(1) == (1, 2)


def test_a_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    doubles, lock = Doubles(), ProcessLock()

    def enter() -> bool:
        with lock:
            return doubles.get(1) == (1, 2)

    with doubles._lock, lock:  # As another thread may hold them when somebody forks.
        assert _in_a_child(enter)


def test_things_are_not_pickled() -> None:
    doubles = Doubles(5)
    doubles.get(4)
    copy = pickle.loads(pickle.dumps(doubles))
    assert copy.find(4) is None and copy.made == [4] and copy.most == 5
    assert copy.get(3) == (3, 6)
    with pickle.loads(pickle.dumps(ProcessLock())):
        pass
