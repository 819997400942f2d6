"""Loaders: the elements that Grain's DataLoader gives without workers, and its states."""

import json
from typing import Any

import grain
import grain.python
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import bushel
from tests.grain.loaders import MEMORYLESS, Loader, Rows, build, loaders, operation
from tests.grain.oracle import Raised, assert_same, blocks_of, examples, outcome
from tests.grain.programs import Step

block_sizes = st.sampled_from([1, 2, 3, 5, 100])
reads = st.sampled_from([(0, 0), (0, 0), None, (2, 4)])


_END = object()
# More than any program here gives, and enough of those that fail for ever.
_MANY = 300


def _ours(program: Loader, read: Any, ahead: bool) -> Any:
    iterator = iter(build(bushel, program, read))
    if ahead:
        iterator.start_prefetch()
    return iterator


def _events(program: Loader, iterator: Any, most: int = _MANY) -> list[Any]:
    """What happens, up to the first error where Grain does not go on after it.

    It does after a map, a filter or a batch that fails. A generator that fails is finished,
    so that its older operations and those of users end there; its flat map repeats elements;
    and a shard without records fails for ever.
    """
    happened: list[Any] = []
    while len(happened) < most:
        event = outcome(lambda: next(iterator, _END))
        if event is _END:
            return happened
        happened.append(event)
        if isinstance(event, Raised) and _ends_grain(program, event):
            return happened
    assert most < _MANY, f"no end after {most} elements"
    return happened


def _ends_grain(program: Loader, event: Raised) -> bool:
    by_generators = program.uses("flat_map", "own") or "legacy" in program.vias()
    return by_generators or isinstance(event.error, ZeroDivisionError)


def _assert_same_events(program: Loader, expected: list[Any], actual: list[Any]) -> None:
    for number, event in enumerate(expected):
        # The older batch of Grain checks structures before it stacks, and refuses a None
        # among numbers, which both stack elsewhere.
        if isinstance(event, Raised) and "Record structures do not match" in str(event.error):
            expected, actual = expected[:number], actual[:number]
            break
    assert_same(expected, actual)


@examples(150)
@given(loaders(), reads, st.booleans(), block_sizes)
def test_elements(program: Loader, read: Any, ahead: bool, size: int) -> None:
    expected = _events(program, iter(build(grain, program)))
    with blocks_of(size):
        _assert_same_events(program, expected, _events(program, _ours(program, read, ahead)))


@examples(20)
@given(loaders(kinds="map random_map batch", endless=True), reads, st.integers(0, 60))
def test_endless_epochs(program: Loader, read: Any, count: int) -> None:
    """Without a last epoch there is no end, wherever one stops."""
    expected = _events(program, iter(build(grain, program)), count)
    with iter(build(bushel, program, read)) as ours:
        _assert_same_events(program, expected, _events(program, ours, count))


def _resumable(program: Loader) -> bool:
    """Whether a state says all: nothing is kept in operations or in a sampler's generators."""
    own = [step["f"] for step in program.operations if step.op == "own"]
    sampler = dict(program.sampler.args)
    kept = sampler.get("form") == "list" and sampler["rng"] is not None
    return not kept and all(name in MEMORYLESS for name in own)


@examples(75)
@given(st.data())
def test_states_resume(data: st.DataObject) -> None:
    """A state goes to where it was taken: here, elsewhere, with other threads."""
    program = data.draw(loaders().filter(_resumable), label="program")
    states, happened = [], []
    with blocks_of(data.draw(block_sizes, label="first block size")):
        iterator = _ours(program, data.draw(reads, label="read"), data.draw(st.booleans()))
        while len(happened) < _MANY:
            states.append(iterator.get_state())
            event = outcome(lambda: next(iterator, _END))
            if event is _END:
                break
            happened.append(event)
    for _ in range(3):
        stop = data.draw(st.integers(0, len(states) - 1), label="stop")
        if data.draw(st.booleans(), label="elsewhere"):
            iterator = _ours(program, data.draw(reads, label="read"), data.draw(st.booleans()))
        with blocks_of(data.draw(block_sizes, label="block size")):
            iterator.set_state(states[stop])
            assert iterator.get_state() == states[stop]
            rest = [outcome(lambda i=iterator: next(i, _END)) for _ in happened[stop:]]
            assert_same(happened[stop:], rest, f"from {stop} ")
            if len(happened) < _MANY:
                assert next(iterator, _END) is _END


_PLAIN = "map map random_map random_map filter batch batch own"


@examples(75)
@given(st.data())
def test_grain_states_restore(data: st.DataObject) -> None:
    """A state that Grain wrote goes on in bushel where Grain stopped."""
    program = data.draw(loaders(kinds=_PLAIN).filter(_resumable), label="program")
    theirs = iter(build(grain, program))
    for _ in range(data.draw(st.integers(0, 8), label="stop")):
        event = outcome(lambda: next(theirs, _END))
        if event is _END:
            break
        assume(not (isinstance(event, Raised) and _ends_grain(program, event)))
    state = theirs.get_state()
    ours = _ours(program, data.draw(reads, label="read"), data.draw(st.booleans(), label="ahead"))
    for _ in range(data.draw(st.integers(0, 3), label="elsewhere before")):
        outcome(lambda: next(ours, _END))
    ours.set_state(state)
    with blocks_of(data.draw(block_sizes, label="block size")):
        _assert_same_events(program, _events(program, theirs), _events(program, ours))


@examples(50)
@given(st.data())
def test_states_say_what_grain_says(data: st.DataObject) -> None:
    """And so they restore into Grain, too."""
    program = data.draw(loaders(kinds=_PLAIN).filter(_resumable), label="program")
    theirs, ours = iter(build(grain, program)), iter(build(bushel, program))
    for _ in range(data.draw(st.integers(0, 8), label="stop")):
        expected, actual = (outcome(lambda i=i: next(i, _END)) for i in (theirs, ours))
        if expected is _END or isinstance(expected, Raised):
            # At the end Grain counts what a filter dropped after the last element.
            return
        assert_same(expected, actual)
    said = json.loads(theirs.get_state())
    state = ours.get_state()
    assert said == {name: json.loads(state)[name] for name in said}
    restored = iter(build(grain, program))
    restored.set_state(state)
    _assert_same_events(program, _events(program, theirs), _events(program, restored))


# Samplers of the user's own, in the forms that programs are known to have.


class _Keys:
    """A sampler that gives these keys."""

    def __init__(self, lib: Any, keys: Any) -> None:
        self._lib, self._keys = lib, keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, step: int) -> Any:
        return self._lib.RecordMetadata(index=step, record_key=self._keys[step])


class _Echo:
    """A source that shows the key it was asked for."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: Any) -> Any:
        return type(key).__name__, key

    def __repr__(self) -> str:
        return "Echo"


def _whole(lib: Any, source: Any, sampler: Any, **more: Any) -> Any:
    options = lib.sharding.NoSharding()
    return lib.DataLoader(data_source=source, sampler=sampler, shard_options=options, **more)


def _both(run: Any) -> None:
    """Runs the same in both libraries and compares what comes of it."""
    assert_same(outcome(lambda: run(grain)), outcome(lambda: run(bushel)))


@pytest.mark.parametrize(
    ("source", "keys"),
    [
        (list("abc"), [0, 3, 4, -1, -3, -4]),
        (range(3), [0, 3, -1]),
        (np.arange(6).reshape(3, 2), [0, 4, -1]),
        ("abc", [5, 1]),
        (Rows([{"a": 1}, {"a": 2}]), [3, -4]),
        (_Echo(), [0, 3, -1, 7]),
        (_Echo(), [np.int64(4), np.int32(1), True, 4.0]),
        (_Echo(), ["x", None, (1, 2)]),
        ({"x": 1, "y": 2}, ["x", "y"]),
        ({7: "a", 8: "b", 1: "c"}, [7]),
        ({7: "a", 8: "b"}, [7]),
        (list("abc"), [1.0]),
        ([], [0]),
    ],
    ids=str,
)
def test_keys_that_wrap_and_keys_that_are_no_numbers(source: Any, keys: Any) -> None:
    _both(lambda lib: list(_whole(lib, source, _Keys(lib, keys))))


def test_keys_reach_a_dataset_in_its_first_epoch() -> None:
    def run(lib: Any) -> Any:
        source = lib.MapDataset.range(9).shuffle(seed=1).filter(lambda x: x != 4)
        return list(_whole(lib, source, _Keys(lib, range(27))))

    _both(run)


class _Strange:
    """A sampler that fails, or says something else, at one step."""

    def __init__(self, lib: Any, what: Any) -> None:
        self._lib, self._what = lib, what

    def __len__(self) -> int:
        return 4

    def __getitem__(self, step: int) -> Any:
        if step == 2:
            if isinstance(self._what, Exception):
                raise self._what
            return self._what
        return self._lib.RecordMetadata(index=step, record_key=step)


@pytest.mark.parametrize("what", [None, 3, "key", IndexError("early"), KeyError("late")], ids=repr)
def test_a_sampler_that_fails(what: Any) -> None:
    def run(lib: Any) -> Any:
        iterator = iter(_whole(lib, list("abcd"), _Strange(lib, what)))
        return [outcome(lambda: next(iterator)) for _ in range(3)]

    _both(run)


class _Unending:
    """A sampler without a length that has these many steps."""

    def __init__(self, lib: Any, steps: int, error: type[Exception] = IndexError) -> None:
        self._lib, self._steps, self._error = lib, steps, error

    def __getitem__(self, step: int) -> Any:
        if step >= self._steps:
            raise self._error(step)
        return self._lib.RecordMetadata(index=step, record_key=step)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7, 16, 20])
@pytest.mark.parametrize("shard", [(0, 1), (1, 3)], ids=str)
def test_a_sampler_without_a_length(steps: int, shard: tuple[int, int]) -> None:
    def run(lib: Any) -> Any:
        options = lib.sharding.ShardOptions(*shard)
        sampler = _Unending(lib, steps)
        return list(lib.DataLoader(data_source=range(30), sampler=sampler, shard_options=options))

    _both(run)


def test_a_sampler_without_a_length_and_without_an_end() -> None:
    def run(lib: Any) -> Any:
        iterator = iter(_whole(lib, range(30), _Unending(lib, 10**30)))
        return [next(iterator) for _ in range(70)]

    _both(run)


def test_a_sampler_that_ends_with_another_error() -> None:
    _both(lambda lib: list(_whole(lib, range(30), _Unending(lib, 7, KeyError))))


@pytest.mark.parametrize(
    "arguments",
    [
        lambda lib: {"sampler": _Unending(lib, 3)},
        lambda lib: {"sampler": [lib.RecordMetadata(0, 0)]},
        lambda lib: {"sampler": None, "shard_options": lib.sharding.NoSharding()},
        lambda lib: {"sampler": 3, "shard_options": lib.sharding.NoSharding()},
        lambda lib: {"worker_count": -1},
        lambda lib: {"worker_buffer_size": -1},
        lambda lib: {"operations": None},
        lambda lib: {"operations": 3},
        lambda lib: {"operations": [3]},
        lambda lib: {"operations": ["abc"]},
        lambda lib: {"operations": [None]},
        lambda lib: {"operations": [[]]},
        lambda lib: {"operations": [lib.transforms.Batch(0)]},
        lambda lib: {"operations": [lib.transforms.Batch(-1)]},
        lambda lib: {"operations": [lib.transforms.Batch(2.5)]},
        lambda lib: {"operations": [lib.transforms.Batch(None)]},
        lambda lib: {"operations": [lib.python.BatchOperation(0)]},
        lambda lib: {"data_source": None},
        lambda lib: {"data_source": 3},
        lambda lib: {"data_source": lib.MapDataset.range(6).to_iter_dataset()},
        lambda lib: {"nonsense": 1},
    ],
)
def test_refused_arguments(arguments: Any) -> None:
    def run(lib: Any) -> Any:
        sampler = lib.samplers.IndexSampler(6, num_epochs=1)
        given = {"data_source": range(6), "sampler": sampler, **arguments(lib)}
        return list(lib.DataLoader(**given))

    expected = outcome(lambda: run(grain))
    assert isinstance(expected, Raised)
    assert_same(expected, outcome(lambda: run(bushel)))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"worker_buffer_size": 0},
        {"worker_buffer_size": 3, "enable_profiling": True},
    ],
    ids=str,
)
def test_multiprocessing_options(arguments: dict[str, Any]) -> None:
    _both(lambda lib: repr(_whole(lib, [1], _Keys(lib, [0]), **arguments).multiprocessing_options))


# Objects that are of several kinds: the first of Map, RandomMap, TfRandomMap, FlatMap, Filter.


@pytest.mark.parametrize(
    "kinds",
    [
        ("Map", "Filter"),
        ("Filter", "Map"),
        ("RandomMap", "Map"),
        ("RandomMap", "Filter"),
        ("TfRandomMap", "RandomMap"),
        ("TfRandomMap", "Map"),
        ("MapWithIndex", "Map"),
        ("FlatMap", "Map"),
        ("FlatMap", "Filter"),
        ("FlatMap", "RandomMap"),
    ],
    ids="-".join,
)
def test_an_operation_of_two_kinds(kinds: tuple[str, ...]) -> None:
    methods = {
        "map": lambda self, x: ("map", x),
        "filter": lambda self, x: x % 2 == 0,
        "random_map": lambda self, x, rng: ("random_map", x, rng.integers(99)),
        "np_random_map": lambda self, x, rng: ("np_random_map", x, rng.integers(99)),
        "map_with_index": lambda self, i, x: ("map_with_index", x),
        "flat_map": lambda self, x: [("flat_map", x)] * 2,
        "max_fan_out": 2,
    }

    def run(lib: Any) -> Any:
        names = {"FlatMap": lib.experimental.FlatMapTransform}
        bases = tuple(names.get(kind) or getattr(lib.transforms, kind) for kind in kinds)
        sampler = lib.samplers.IndexSampler(4, num_epochs=1, seed=1)
        operations = [type("Both", bases, methods)()]
        return list(lib.DataLoader(data_source=range(4), sampler=sampler, operations=operations))

    _both(run)


# What a function sees, and what it may do.


@pytest.mark.parametrize(
    "before",
    [
        lambda lib: [],
        lambda lib: [_step_of(lib, "map", f="pair", via="object")],
        lambda lib: [_step_of(lib, "map", f="pair", via="legacy")],
        lambda lib: [_step_of(lib, "filter", f="half", via="object")],
        lambda lib: [_step_of(lib, "filter", f="half", via="legacy")],
        lambda lib: [_step_of(lib, "random_map", f="word", via="object")],
        lambda lib: [_step_of(lib, "random_map", f="word", via="legacy")],
        lambda lib: [_step_of(lib, "batch", size=3, drop=False, f=None, via="object")],
        lambda lib: [_step_of(lib, "batch", size=3, drop=True, f=None, via="legacy")],
        lambda lib: [_step_of(lib, "flat_map", f="numbered")],
        lambda lib: [_step_of(lib, "own", f="pairs")],
    ],
    ids=(
        "nothing map older-map filter older-filter random older-random batch older-batch flat own"
    ).split(),
)
def test_what_an_operation_sees_of_records(before: Any) -> None:
    """Index, key, generator and data; some operations take the key away."""

    def run(lib: Any) -> Any:
        sampler = lib.samplers.IndexSampler(8, lib.sharding.ShardOptions(1, 2), False, 2, seed=5)
        operations = [*before(lib), _step_of(lib, "own", f="see"), _step_of(lib, "own", f="draw")]
        return list(lib.DataLoader(data_source=range(8), sampler=sampler, operations=operations))

    _both(run)


def _step_of(lib: Any, op: str, **arguments: Any) -> Any:
    return operation(lib, Step(op, (), tuple(arguments.items())))


def test_operations_are_read_once() -> None:
    def run(lib: Any) -> Any:
        class Add(lib.transforms.Map):
            def map(self, element: int) -> int:
                return element + 1

        given = [Add()]
        sampler = lib.samplers.SequentialSampler(4)
        loader = lib.DataLoader(data_source=range(4), sampler=sampler, operations=given)
        given.append(Add())
        once = iter([Add()])
        by_iterator = lib.DataLoader(data_source=range(4), sampler=sampler, operations=once)
        return list(loader), list(loader), list(by_iterator), list(by_iterator)

    _both(run)


def test_iterators_are_independent() -> None:
    def run(lib: Any) -> Any:
        class Draw(lib.transforms.RandomMap):
            def random_map(self, element: int, rng: np.random.Generator) -> Any:
                return element, rng.random()

        sampler = lib.samplers.IndexSampler(9, shuffle=True, num_epochs=2, seed=5)
        loader = lib.DataLoader(data_source=range(9), sampler=sampler, operations=[Draw(), Draw()])
        first, second = iter(loader), iter(loader)
        taken = [next(first), next(first), next(second), next(first), next(second)]
        return taken, iter(first) is first

    _both(run)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_every_shard_of_a_shuffled_source(shuffle: bool, drop_remainder: bool) -> None:
    def run(lib: Any) -> Any:
        every = []
        for index in range(3):
            options = lib.sharding.ShardOptions(index, 3, drop_remainder)
            sampler = lib.samplers.IndexSampler(50, options, shuffle, 2, seed=7)
            every.append(list(lib.DataLoader(data_source=range(50), sampler=sampler)))
        return every

    _both(run)


def test_the_shards_of_loader_and_sampler_may_differ() -> None:
    def run(lib: Any) -> Any:
        shard = lib.sharding.ShardOptions
        sampler = lib.samplers.IndexSampler(10, shard(0, 3), num_epochs=1)
        loader = lib.DataLoader(data_source=range(10), sampler=sampler, shard_options=shard(1, 2))
        return list(loader), json.loads(iter(loader).get_state())["last_seen_indices"]

    _both(run)
