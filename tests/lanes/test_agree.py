"""Processes agree on the least of their numbers, or find out that they cannot."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import bushel.lanes.agree
from bushel.errors import AgreementError
from bushel.lanes.agree import Agreement
from tests.patience import PATIENCE_SECONDS


class Board:
    """Notes as JAX's coordinator keeps them, in this process."""

    def __init__(self) -> None:
        self._notes: dict[str, str] = {}
        self._changed = threading.Condition()

    def key_value_set(self, key: str, value: str) -> None:
        with self._changed:
            if key in self._notes:
                raise RuntimeError(f"ALREADY_EXISTS: key {key} already exists.")
            self._notes[key] = value
            self._changed.notify_all()

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._notes, timeout_in_ms / 1000):
                raise RuntimeError(f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key}")
            return self._notes[key]

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        with self._changed:
            return [note for note in self._notes.items() if note[0].startswith(key)]

    def key_value_delete(self, key: str) -> None:
        with self._changed:
            self._notes.pop(key, None)

    def __len__(self) -> int:
        return len(self._notes)


class Lost(Board):
    """A board whose coordinator is gone."""

    def key_value_set(self, key: str, value: str) -> None:
        raise RuntimeError("UNAVAILABLE: failed to connect to all addresses")


def _agreements(
    count: int, board: Board | None = None, timeout_s: float = PATIENCE_SECONDS
) -> list[Agreement]:
    board = Board() if board is None else board
    return [Agreement(board, index, count, "test", timeout_s) for index in range(count)]


def _side_by_side(*works: Callable[[], Any]) -> list[Any]:
    """What each of these returns, or raises."""
    results: list[Any] = [None] * len(works)

    def run(index: int) -> None:
        try:
            results[index] = works[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "somebody waits without end"
    return results


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_least_of_all(count: int) -> None:
    board = Board()
    agreements = _agreements(count, board)
    numbers = [[(index * 7 + turn * 5) % 11 for turn in range(30)] for index in range(count)]
    works = [
        lambda agree=agree, mine=mine: [agree(number) for number in mine]
        for agree, mine in zip(agreements, numbers, strict=True)
    ]
    expected = [min(turn) for turn in zip(*numbers, strict=True)]
    assert _side_by_side(*works) == [expected] * count
    # What is over is not kept.
    assert len(board) <= 2 * count


@pytest.mark.parametrize("who", [0, 1, 2])
@pytest.mark.parametrize("how", ["close", "restart"])
def test_who_leaves_is_missed(who: int, how: str) -> None:
    agreements = _agreements(3)

    def go_on(agree: Agreement) -> int:
        agree(5)
        return agree(5)

    def leave(agree: Agreement) -> None:
        agree(5)
        getattr(agree, how)()

    works = [
        (lambda agree=agree: leave(agree)) if index == who else (lambda agree=agree: go_on(agree))
        for index, agree in enumerate(agreements)
    ]
    for index, result in enumerate(_side_by_side(*works)):
        if index == who:
            assert result is None
        else:
            assert isinstance(result, AgreementError)
            assert "closed its iterator, or restored it" in str(result)


@pytest.mark.parametrize("closed", [0, 1])
def test_who_has_left_is_missed_again(closed: int) -> None:
    agreements = _agreements(2)
    agreements[closed].close()
    left = agreements[1 - closed]
    for _ in range(3):
        with pytest.raises(AgreementError, match="All processes of a job must do the same"):
            left(1)
        left.restart()  # As an iterator does after an error.


@pytest.mark.parametrize("index", [0, 1])
def test_closing_ends_the_own_waiting(index: int) -> None:
    agreement = _agreements(2)[index]
    asked = threading.Event()

    def ask() -> int:
        asked.set()
        return agreement(3)

    def close() -> None:
        asked.wait(PATIENCE_SECONDS)
        agreement.close()

    result, _ = _side_by_side(ask, close)
    assert isinstance(result, AgreementError)
    assert "was closed while it waited" in str(result)


def test_the_end_waits_until_nobody_asks() -> None:
    agreement = _agreements(2)[1]
    told: list[str] = []
    asked = threading.Event()

    def ask() -> None:
        asked.set()
        with pytest.raises(AgreementError):
            agreement(3)
        told.append("asked")

    def end() -> None:
        asked.wait(PATIENCE_SECONDS)
        agreement.end()
        told.append("ended")

    _side_by_side(ask, end)
    assert sorted(told) == ["asked", "ended"]
    agreement.end()


def test_all_may_begin_anew() -> None:
    agreements = _agreements(2)

    def work(agree: Agreement, offset: int) -> list[int]:
        numbers = []
        for turn in range(3):
            numbers += [agree(turn + offset), agree(10 * turn + offset)]
            agree.restart()
        return numbers

    results = _side_by_side(*(lambda i=i: work(agreements[i], i) for i in range(2)))
    assert results == [[0, 0, 1, 10, 2, 20]] * 2


def test_all_may_begin_anew_though_one_has_given_up_a_round() -> None:
    first, second = _agreements(2)
    second._timeout_s = 0.001
    with pytest.raises(AgreementError):
        second(5)
    assert first(3) == 3  # What the second said was there, and this round is over for the first.
    second._timeout_s = PATIENCE_SECONDS
    for agree in (first, second):
        agree.restart()
    assert _side_by_side(lambda: first(4), lambda: second(2)) == [2, 2]


def test_who_is_waited_for_is_said_and_patience_has_an_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bushel.lanes.agree, "_SAY_AFTER_SECONDS", 0.1)
    # Of four, the last two do not come. (A busy machine may start the second a second later.)
    first, second, *_ = _agreements(4, timeout_s=2.0)
    for agreement in (first, second):
        agreement.at_step(70)

    def ask(agreement: Agreement) -> str:
        with pytest.raises(AgreementError) as caught:
            agreement(3)
        return str(caught.value)

    told = _side_by_side(lambda: ask(first), lambda: ask(second))
    assert [text.partition(", since")[0] for text in told] == [
        "process 0 of 4 has waited at step 70 for process 2, 3",
        "process 1 of 4 has waited at step 70 for process 2, 3",
    ]
    assert all("it has 3 ready" in text and "agree_timeout_s=20" in text for text in told)
    logged = [record.getMessage() for record in caplog.records]
    assert any("process 1 of 4 has waited at step 70 for process 2, 3" in text for text in logged)


def test_where_all_others_have_spoken_it_is_the_first_that_is_waited_for() -> None:
    _, second = _agreements(2, timeout_s=0.3)
    with pytest.raises(AgreementError, match="process 1 of 2 has waited at step 0 for process 0"):
        second(1)


def test_a_lost_coordinator_is_told_and_closing_is_not_kept_from() -> None:
    for agreement in _agreements(2, Lost()):
        agreement.close()
        agreement.close()
    with pytest.raises(RuntimeError, match="UNAVAILABLE"):
        _agreements(2, Lost())[1](1)
