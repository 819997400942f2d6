"""Streams: the elements that Grain gives, and states that resume exactly."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import grain
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import bushel
from tests.grain.oracle import (
    Raised,
    assert_same,
    blocks_of,
    events,
    examples,
    is_deliberate,
    outcome,
)
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

    After it Grain may repeat the error for ever, end early or raise another one.
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
        # A value that bushel gives instead of a useless error may well be dropped downstream.
        expected = expected[:-1] if is_deliberate(expected[-1]) else expected
        happened = happened[: len(expected)]
    assert_same(expected, happened, where)


def _theirs(program: Step) -> Any:
    """Grain's iterator, to be closed: its threads do not end well on their own."""
    return closing(iter(build(grain, program, threads=0)))


def _expected(program: Step) -> list[Any]:
    with _theirs(program) as iterator:
        return _grain_events(iterator)


@contextmanager
def _ours(
    program: Step, size: int, ahead: bool = False, threads: int | None = None
) -> Iterator[Any]:
    """bushel's iterator, with blocks of one size; closed in the end, even by a failure."""
    with blocks_of(size), closing(iter(build(bushel, program, threads))) as iterator:
        if ahead:
            iterator.start_prefetch()
        yield iterator


@examples(100)
@given(stream_programs(), st.booleans(), block_sizes)
def test_elements(program: Step, ahead: bool, size: int) -> None:
    expected = _expected(program)
    with _ours(program, size, ahead) as iterator:
        _assert_same_until_error(expected, iterator)


@examples(75)
@given(st.data())
def test_states_resume(data: st.DataObject) -> None:
    """A state goes to where it was taken: here, elsewhere, as JSON, with other threads."""
    program = data.draw(stream_programs(failing=True), label="program")
    ahead = data.draw(st.booleans(), label="ahead")
    with _ours(program, data.draw(block_sizes, label="first block size"), ahead) as iterator:
        states, happened = [iterator.get_state()], []
        while True:
            try:
                happened.append(next(iterator))
            except StopIteration:
                break
            except Exception as error:
                happened.append(Raised(error))
            states.append(iterator.get_state())
        stop = data.draw(st.integers(0, len(happened)), label="back to")
        iterator.set_state(states[stop])
        assert_same(happened[stop:], events(iterator), f"back to {stop} ")
    for _ in range(2):
        stop = data.draw(st.integers(0, len(happened)), label="stop")
        state, threads = states[stop], data.draw(st.none() | st.integers(0, 2), label="threads")
        if data.draw(st.booleans(), label="json"):
            state = json.loads(json.dumps(state))
        with _ours(program, data.draw(block_sizes, label="size"), ahead, threads) as iterator:
            iterator.set_state(state)
            assert iterator.get_state() == state
            assert_same(happened[stop:], events(iterator), f"from {stop} ")


@examples(50)
@given(st.data())
def test_grain_states_restore(data: st.DataObject) -> None:
    """A state that Grain saved continues in bushel as it would have in Grain."""
    program = data.draw(stream_programs(), label="program")
    expected = _expected(program)
    failed = bool(expected) and isinstance(expected[-1], Raised)
    # One more than there are: the state that Grain has after StopIteration.
    stop = data.draw(st.integers(0, len(expected) - 1 if failed else len(expected) + 1))
    with _theirs(program) as iterator:
        for _ in range(stop):
            next(iterator, None)
        state = iterator.get_state()
    with _ours(program, data.draw(block_sizes)) as restored:
        restored.set_state(json.loads(json.dumps(state)))
        _assert_same_until_error(expected[stop:], restored, f"{state} ")


@pytest.mark.parametrize(
    ("count", "size"), [(1, 1), (1, 2), (2, 1), (2, 3), (4, 2), (5, 3), (6, 3)]
)
def test_grain_states_of_windows_that_are_used_up(count: int, size: int) -> None:
    """Of such a window Grain's state names the start, and the number of the next one."""
    theirs, ours = (
        library.experimental.WindowShuffleIterDataset(
            library.MapDataset.range(count).to_iter_dataset(), window_size=size, seed=3
        )
        for library in (grain, bushel)
    )
    for stop in range(count + 1):
        iterator, restored = iter(theirs), iter(ours)
        for _ in range(stop):
            next(iterator)
        restored.set_state(iterator.get_state())
        assert list(restored) == list(iterator)


@examples(50)
@given(map_programs(failing=True), st.integers(0, 3), st.booleans(), st.booleans(), block_sizes)
def test_failures_stand_where_the_element_would(
    source: Step, threads: int, allow_nones: bool, ahead: bool, size: int
) -> None:
    """An element that fails raises in its place, and the stream goes on after it."""
    theirs = build(grain, source)
    assume(len(theirs) <= 40)
    expected = [outcome(lambda p=position: theirs[p]) for position in range(len(theirs))]
    if not allow_nones:
        expected = [event for event in expected if event is not None]
    program = source.then("to_iter", threads=threads, buffer=5, allow_nones=allow_nones)
    with _ours(program, size, ahead) as iterator:
        assert_same(expected, events(iterator))


@examples(30)
@given(sources(), st.data(), st.booleans(), block_sizes)
def test_failing_steps(source: Step, data: st.DataObject, ahead: bool, size: int) -> None:
    """When the function of a step of the stream raises, the same elements are lost."""
    program = source.then("to_iter", threads=0, buffer=1, allow_nones=False)
    for _ in range(data.draw(st.integers(1, 3))):
        op = data.draw(st.sampled_from(["map", "filter", "map_with_index", "random_map", "batch"]))
        program = data.draw(elementwise(program, op, failing=True))
    with _theirs(program) as iterator:
        expected = events(iterator)
    with _ours(program, size, ahead) as iterator:
        assert_same(expected, events(iterator))


@examples(50)
@given(stream_programs(depth=0), st.integers(0, 3), st.integers(0, 4), block_sizes)
def test_next_index(program: Step, before: int, target: int, size: int) -> None:
    # Grain's prefetching thread counts for itself, also where the stream has no index.
    assume(not uses(program, "prefetch"))
    with _theirs(program) as theirs, _ours(program, size) as ours:
        for _ in range(before):
            assume(not isinstance(outcome(lambda: next(theirs)), Raised))
            next(ours)
        expected = outcome(lambda: grain.experimental.get_next_index(theirs))
        assert_same(expected, outcome(lambda: bushel.experimental.get_next_index(ours)))
        expected = outcome(lambda: grain.experimental.set_next_index(theirs, target))
        assert_same(expected, outcome(lambda: bushel.experimental.set_next_index(ours, target)))
        if not isinstance(expected, Raised):
            _assert_same_until_error(_grain_events(theirs), ours)


MADE_STREAMS = {
    "iter": lambda lib, ds: ds,
    "mix": lambda lib, ds: lib.IterDataset.mix([ds, ds.map(str)], [2, 1]),
    "mix by name": lambda lib, ds: lib.IterDataset.mix({"b": ds, "a": ds.map(str)}),
    "zip": lambda lib, ds: lib.experimental.ZipIterDataset([ds, ds.map(str)]),
    "prefetch": lambda lib, ds: lib.experimental.ThreadPrefetchIterDataset(
        ds, prefetch_buffer_size=2
    ),
    "window shuffle": lambda lib, ds: lib.experimental.WindowShuffleIterDataset(
        ds, window_size=3, seed=1
    ),
}


@pytest.mark.parametrize("make", MADE_STREAMS.values(), ids=MADE_STREAMS.keys())
def test_random_access_where_a_stream_is_expected(make: Callable[[Any, Any], Any]) -> None:
    expected, actual = (
        list(make(lib, lib.MapDataset.range(10).filter(lambda x: x % 3))) for lib in (grain, bushel)
    )
    assert_same(expected, actual)
