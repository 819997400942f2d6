"""An error of the user's code arrives as it was raised, and tells where."""

import re
import traceback
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset
from tests.nursery import one_nursery
from tests.workers import odd_errors, parts
from tests.workers.processes import assert_gone, descendants, linux, run
from tests.workers.streams import make_loader, signed_events, with_workers

__all__ = ["one_nursery"]  # Who makes workers is not looked at here.

KINDS = [*odd_errors.PLAIN]


def _collect(ds: Any) -> tuple[list[Any], list[Exception]]:
    elements, errors = [], []
    with iter(ds) as iterator:
        while True:
            try:
                elements.append(next(iterator))
            except StopIteration:
                return elements, errors
            except Exception as error:
                errors.append(error)
                assert len(errors) < 100, error


@pytest.fixture(scope="module")
def inline() -> Any:
    return _collect(MapDataset.range(3 * len(KINDS)).map(odd_errors.fail_at))


@pytest.fixture(scope="module")
def remote() -> Any:
    return _collect(with_workers(MapDataset.range(3 * len(KINDS)).map(odd_errors.fail_at), 2))


def _assert_has_traceback(error: BaseException, function: Any, line: int) -> None:
    cause = str(error.__cause__)
    # A debugger stops where it was raised, not where it was handed over.
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert function.__name__ in names
    number = function.__code__.co_firstlineno + line
    assert "Traceback (most recent call last)" in cause
    assert f"line {number}, in {function.__name__}\n" in cause, cause


def test_all_other_elements_come(inline: Any, remote: Any) -> None:
    assert remote[0] == inline[0] == [n for n in range(3 * len(KINDS)) if n % 3 != 1]
    assert len(remote[1]) == len(inline[1]) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_type_message_notes_and_traceback(kind: str, inline: Any, remote: Any) -> None:
    number = KINDS.index(kind)
    wanted, error = inline[1][number], remote[1][number]
    assert type(error) is type(wanted)
    assert str(error) == str(wanted)
    assert error.args == wanted.args or isinstance(error, ExceptionGroup)
    assert {**vars(error), "__notes__": 0} == {**vars(wanted), "__notes__": 0}
    for note in wanted.__notes__:
        assert note in error.__notes__
    assert f"bushel: raised in `map(fail_at)` at position {3 * number + 1}." in error.__notes__
    if kind != "StopIteration":  # Which is told in bushel's words.
        _assert_has_traceback(error, odd_errors.fail_at, 4)
        assert "failures[number // 3]()" in str(error.__cause__)


def test_the_cause_of_the_users_own_is_told_too(remote: Any) -> None:
    error = remote[1][KINDS.index("with a cause")]
    assert "KeyError: 'inner'" in str(error.__cause__)
    assert "raise_with_cause" in str(error.__cause__)


@pytest.mark.parametrize("kind", odd_errors.ODD)
def test_odd_exceptions_say_as_much(kind: str) -> None:
    fail, name, message = odd_errors.ODD[kind]

    def fail_at_two(number: int) -> int:
        if number == 2:
            fail()
        return number

    elements, (error,) = _collect(with_workers(MapDataset.range(5).map(fail_at_two), 1))
    assert elements == [0, 1, 3, 4]
    said = "\n".join([type(error).__name__, _text_of(error), *error.__notes__])
    assert name in said
    assert message in said
    assert "bushel: raised in `map(fail_at_two)` at position 2." in error.__notes__
    _assert_has_traceback(error, fail_at_two, 2)


@pytest.mark.parametrize("kind", odd_errors.BARE)
@pytest.mark.parametrize("count", [0, 1])
def test_exceptions_to_which_nothing_can_be_added(kind: str, count: int, caplog: Any) -> None:
    fail, name, message = odd_errors.BARE[kind]

    def fail_at_two(number: int) -> int:
        if number == 2:
            fail()
        return number

    elements, (error,) = _collect(with_workers(MapDataset.range(5).map(fail_at_two), count))
    assert elements == [0, 1, 3, 4]
    assert name in type(error).__name__ and str(error) == message
    if count:
        _assert_has_traceback(error, fail_at_two, 2)
    assert not caplog.records, "no worker has ended"


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except BaseException:
        return repr(error.args)


def test_an_error_that_nobody_catches_prints_it_all(tmp_path: Path) -> None:
    text = """
        def decode(number):
            if number == 5:
                raise ValueError("five is not a number")  # here
            return number
        for number in MapDataset.range(9).map(decode).to_iter_dataset().mp_prefetch(workers(2)):
            pass
    """
    code, _, err = run(tmp_path, text)
    assert code == 1
    assert "in decode" in err
    assert 'raise ValueError("five is not a number")  # here' in err
    assert err.count("ValueError: five is not a number") == 2, "there, and here"
    assert "bushel: raised in `map(decode)` at position 5." in err


def test_lambdas_and_local_functions_are_found_in_it() -> None:
    class LocalError(Exception):
        pass

    def inner(number: int) -> int:
        if number == 2:
            raise LocalError("local")
        return number

    iterator = iter(with_workers(MapDataset.range(5).map(lambda number: inner(number)), 1))
    assert [next(iterator), next(iterator)] == [0, 1]
    with pytest.raises(LocalError, match="local") as caught:
        next(iterator)
    line = inner.__code__.co_firstlineno + 2
    assert re.search(rf'test_failures.py", line {line}, in inner', str(caught.value.__cause__))
    assert list(iterator) == [3, 4]
    iterator.close()


class Failing(bushel.transforms.Map):
    def map(self, element: int) -> int:
        if element == 31:
            raise odd_errors.Mine("thirty-one")
        return element


@linux
def test_a_loader_goes_on_behind_it_and_closes() -> None:
    before = descendants()
    plain, iterator = (
        iter(make_loader(Failing(), parts.Double(), workers=count)) for count in (0, 2)
    )
    events = signed_events(iterator)
    assert [what[:3] for what, _ in events if what[0] == "error"] == [
        ("error", "Mine", "thirty-one")
    ]
    assert events == signed_events(plain)
    pids = descendants() - before
    iterator.close()
    assert_gone(pids)


def test_a_source_that_fails_names_the_key() -> None:
    class Broken:
        def __len__(self) -> int:
            return 60

        def __getitem__(self, key: int) -> int:
            if key == 33:
                raise odd_errors.Mine("unreadable")
            return key

        def __repr__(self) -> str:
            return "Broken()"

    with (
        pytest.raises(odd_errors.Mine) as caught,
        iter(make_loader(workers=2, source=Broken())) as iterator,
    ):
        list(iterator)
    notes = "\n".join(caught.value.__notes__)
    assert "the source Broken failed on key 33" in notes
    assert "raised in `source(Broken)`" in notes


def test_an_interrupted_function_does_not_take_the_worker_with_it() -> None:
    """KeyboardInterrupt and SystemExit, raised by the user's code, are answers like others."""

    def leave(number: int) -> int:
        if number == 4:
            raise SystemExit(3)
        return number

    iterator = iter(with_workers(MapDataset.range(8).map(leave), 1))
    with pytest.raises((SystemExit, RuntimeError)):
        list(iterator)
    iterator.close()
