"""Streams: the elements that Grain gives, and states that resume exactly."""

import json
from typing import Any

import bushel
import grain
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.grain.oracle import Raised, assert_same, blocks_of, events, examples, outcome
from tests.grain.programs import (
    Step,
    build,
    elementwise,
    map_programs,
    sources,
    stream_programs,
    uses,
)


block_sizes = st.sampled_from([1, 2, 3, 5, 100])


def _grain_events(iterator: Any) -> list[Any]:
    """Elements up to the first error.

    Behind it Grain may repeat the error for ever, end early or raise another one.
    """
    happened: list[Any] = []
    while not (happened and isinstance(happened[-1], Raised)):
        try:
            happened.append(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            happened.append(Raised(error))
    return happened


def _assert_same_until_error(expected: list[Any], iterator: Any, where: str = "") -> None:
    happened = events(iterator)
    if expected and isinstance(expected[-1], Raised):
        happened = happened[: len(expected)]
    assert_same(expected, happened, where)


def _theirs(program: Step) -> Any:
    return iter(build(grain, program, threads=0))


def _started(iterator: Any, ahead: bool) -> Any:
    """The iterator, reading ahead on its threads if it has any and is told to."""
    if ahead:
        iterator.start_prefetch()
    return iterator


@examples(200)
@given(stream_programs(), st.booleans(), block_sizes)
def test_elements(program: Step, ahead: bool, size: int) -> None:
    expected = _grain_events(_theirs(program))
    with blocks_of(size):
        iterator = _started(iter(build(bushel, program)), ahead)
        _assert_same_until_error(expected, iterator)


@examples(150)
@given(st.data())
def test_states_resume(data: st.DataObject) -> None:
    """A state goes to where it was taken: here, elsewhere, as JSON, with other threads."""
    program = data.draw(stream_programs(failing=True), label="program")
    ahead = data.draw(st.booleans(), label="ahead")
    with blocks_of(data.draw(block_sizes, label="first block size")):
        iterator = _started(iter(build(bushel, program)), ahead)
        states, happened = [iterator.get_state()], []
        while True:
            try:
                happened.append(next(iterator))
            except StopIteration:
                break
            except Exception as error:
                happened.append(Raised(error))
            states.append(iterator.get_state())
    for _ in range(3):
        stop = data.draw(st.integers(0, len(happened)), label="stop")
        kind = data.draw(st.sampled_from(["same", "fresh", "json", "threads"]), label="kind")
        state = states[stop]
        if kind == "json":
            state = json.loads(json.dumps(state))
        if kind != "same":
            threads = data.draw(st.integers(0, 2)) if kind == "threads" else None
            iterator = iter(build(bushel, program, threads))
        with blocks_of(data.draw(block_sizes, label="block size")):
            iterator.set_state(state)
            assert iterator.get_state() == state
            _started(iterator, ahead)
            assert_same(happened[stop:], events(iterator), f"{kind} from {stop} ")


@examples(100)
@given(st.data())
def test_grain_states_restore(data: st.DataObject) -> None:
    """A state that Grain saved continues in bushel as it would have in Grain."""
    program = data.draw(stream_programs(), label="program")
    expected = _grain_events(_theirs(program))
    failed = bool(expected) and isinstance(expected[-1], Raised)
    # One more than there are: the state that Grain has after StopIteration.
    stop = data.draw(st.integers(0, len(expected) - 1 if failed else len(expected) + 1))
    iterator = _theirs(program)
    for _ in range(stop):
        next(iterator, None)
    state = iterator.get_state()
    restored = iter(build(bushel, program))
    with blocks_of(data.draw(block_sizes)):
        restored.set_state(json.loads(json.dumps(state)))
        _assert_same_until_error(expected[stop:], restored, f"{state} ")


@examples(100)
@given(map_programs(failing=True), st.integers(0, 3), st.booleans(), st.booleans(), block_sizes)
def test_failures_stand_where_the_element_would(
    source: Step, threads: int, allow_nones: bool, ahead: bool, size: int
) -> None:
    """An element that fails raises in its place, and the stream goes on behind it."""
    theirs = build(grain, source)
    assume(len(theirs) <= 40)
    expected = [outcome(lambda p=position: theirs[p]) for position in range(len(theirs))]
    if not allow_nones:
        expected = [event for event in expected if event is not None]
    program = source.then("to_iter", threads=threads, buffer=5, allow_nones=allow_nones)
    with blocks_of(size):
        assert_same(expected, events(_started(iter(build(bushel, program)), ahead)))


@examples(60)
@given(sources(), st.data(), st.booleans(), block_sizes)
def test_failing_steps(source: Step, data: st.DataObject, ahead: bool, size: int) -> None:
    """When the function of a step of the stream raises, the same elements are lost."""
    program = source.then("to_iter", threads=0, buffer=1, allow_nones=False)
    for _ in range(data.draw(st.integers(1, 3))):
        op = data.draw(st.sampled_from(["map", "filter", "map_with_index", "random_map", "batch"]))
        program = data.draw(elementwise(program, op, failing=True))
    expected = events(_theirs(program))
    with blocks_of(size):
        assert_same(expected, events(_started(iter(build(bushel, program)), ahead)))


@examples(100)
@given(stream_programs(depth=0), st.data())
def test_next_index(program: Step, data: st.DataObject) -> None:
    theirs, ours = _theirs(program), iter(build(bushel, program))
    index = data.draw(st.integers(0, 3))
    for _ in range(index):
        if isinstance(outcome(lambda: next(theirs)), Raised):
            return
        next(ours)
    expected = outcome(lambda: grain.experimental.get_next_index(theirs))
    actual = outcome(lambda: bushel.experimental.get_next_index(ours))
    if isinstance(actual, Raised) and uses(program, "prefetch"):
        # Grain's prefetching counts for itself, but cannot go anywhere by that count.
        assert isinstance(actual.error, NotImplementedError)
        return
    assert_same(expected, actual)
    target = data.draw(st.integers(0, 4))
    expected = outcome(lambda: grain.experimental.set_next_index(theirs, target))
    assert_same(expected, outcome(lambda: bushel.experimental.set_next_index(ours, target)))
    if not isinstance(expected, Raised):
        _assert_same_until_error(_grain_events(theirs), ours)
