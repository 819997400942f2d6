"""Neither a slow machine nor a fast one shows: the same stream, whatever was learnt of times.

Each test draws the seed of a schedule (see `schedule`), and goes through a stream under it, back
and forth. `BUSHEL_EXAMPLES=1000 pytest tests/contract/test_schedules.py` looks deeper.
"""

import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions
from bushel.core.node import Guard
from bushel.dataset import map_node
from bushel.experimental import DatasetOptions, ThreadPrefetchIterDataset, WithOptionsIterDataset
from bushel.on_error.bad_records import taking_notes
from bushel.run import quota
from bushel.run.inline import compile_node
from tests.contract.events import Event, freeze, freeze_error, freeze_state, pull_events
from tests.contract.pipelines import INLINE, PIPELINES, Kit, stream_of
from tests.contract.schedule import schedule, scheduled_worker
from tests.contract.test_failures import CASES, Case
from tests.grain.programs import Step, build, stream_programs
from tests.property.profile import tried
from tests.thorough import THOROUGH, examples

READ = (INLINE, ReadOptions(1, 1), ReadOptions(2, 4), ReadOptions(3, 7), ReadOptions())
KITS = (Kit(), Kit("columns"), Kit("columns"), Kit("rows", (4, 5, 9)), Kit("many", (0, 7)))

seeds = st.integers(0, 2**32 - 1)


def seed_of(name: str, seed: int) -> int:
    """Another seed for each pipeline."""
    return zlib.crc32(f"{name} {seed}".encode())


def often(count: int) -> settings:
    """The settings of a test: so many examples, unless the environment asks for others."""
    return settings(tried, max_examples=examples(count))


def by_position(ds: MapDataset[Any], allow_nones: bool = False) -> list[Event]:
    """The stream of a random-access dataset, each position evaluated on its own."""
    guards: list[Guard] = []
    evaluator = compile_node(map_node(ds), guards)
    bad = [0] * len(guards)
    events: list[Event] = []
    for position in range(len(ds)):
        with taking_notes() as notes:
            block = evaluator.at(np.array([position]))
        for noted in notes:
            bad[noted.guard] += 1
        counts = {"bad": list(bad)} if guards else {}
        state = freeze_state({"next_index": position + 1, **counts})
        if block.failure is not None:
            assert block.failure.error is not None
            events.append((freeze_error(block.failure.error), state))
        elif (row := block.rows()[0]) is not None or allow_nones:
            events.append((freeze(row), state))
    return events


def one_by_one(ds: Any) -> list[Event]:
    """What a pipeline means: by position where it has positions, and pulled one by one."""
    return by_position(ds) if isinstance(ds, MapDataset) else pull_events(ds, [1] * 2000)


class Walk:
    """Goes through a stream, back and forth, and compares what it meets."""

    def __init__(
        self, ds: Any, expected: list[Event], chance: random.Random, notes: bool = True
    ) -> None:
        self._ds, self._expected, self._chance = ds, expected, chance
        # How much of an error is compared: all of it, or all but the notes.
        self._told = 4 if notes else 3
        self._iterator = iter(ds)
        # The states that were met, by the number of elements before them.
        self._saved: dict[int, Any] = {0: self._iterator.get_state()}
        self._at = 0

    def go(self, steps: int) -> None:
        """Does so many things, and then takes what is left."""
        ways = [self._take_some, self._take_some, self._go_back, self._begin_anew]
        try:
            for _ in range(steps):
                self._chance.choice(ways)()
            self._take(len(self._expected) + 1)
        finally:
            self._iterator.close()

    def _take_some(self) -> None:
        self._take(self._chance.choice([1, 2, 5, 30]))

    def _take(self, most: int) -> None:
        look = self._chance.random() < 0.5
        for _ in range(most):
            try:
                what = freeze(next(self._iterator))
            except StopIteration:
                assert self._at == len(self._expected), "it ends too early"
                self._look()
                return
            except Exception as error:
                what = freeze_error(error)
            assert self._at < len(self._expected), f"it does not end: {what}"
            expected = self._expected[self._at][0]
            assert what[: self._told] == expected[: self._told]
            self._at += 1
            if look:
                self._look()

    def _look(self) -> None:
        """Looks at the state, which is the same however one came here."""
        state = self._iterator.get_state()
        if self._at:
            assert freeze_state(state) == self._expected[self._at - 1][1]
        assert self._saved.setdefault(self._at, state) == state

    def _go_back(self) -> None:
        self._at = self._chance.choice(list(self._saved))
        self._iterator.set_state(self._saved[self._at])
        self._told = 3  # From here on batches are counted anew, in the notes to errors.
        self._look()
        if self._chance.random() < 0.3:
            self._iterator.start_prefetch()

    def _begin_anew(self) -> None:
        self._iterator.close()
        self._look()
        self._iterator = iter(self._ds)
        self._go_back()


@dataclass(frozen=True)
class Draw:
    """A pipeline of the list under the schedule that a seed stands for."""

    ds: IterDataset[Any]
    expected: list[Event]
    seed: int
    chance: random.Random

    def with_workers(self, options: MultiprocessingOptions) -> IterDataset[Any]:
        """Its elements made by workers, which go about it in their own ways."""
        return self.ds.mp_prefetch(options, scheduled_worker(self.seed))


def draw(name: str, seed: int) -> Draw:
    """Chooses how the data of a pipeline looks, and how it is read."""
    seed = seed_of(name, seed)
    chance = random.Random(seed)
    kit = chance.choice(KITS)
    expected = one_by_one(PIPELINES[name](kit))
    return Draw(stream_of(name, replace(kit, read=chance.choice(READ))), expected, seed, chance)


def walk(ds: Any, expected: list[Event], seed: int) -> None:
    """Goes through a stream under the schedule, and in the way, that a seed stands for."""
    chance = random.Random(seed)
    if chance.random() < 0.2:
        size = chance.choice([0, 1, 2, 5, 64])
        ds = ThreadPrefetchIterDataset(ds, prefetch_buffer_size=size)
    with schedule(seed):
        Walk(ds, expected, chance).go(chance.choice([0, 2, 6]))


@pytest.mark.parametrize("name", PIPELINES)
@often(4 if THOROUGH else 3)
@given(seeds)
def test_every_pipeline(name: str, seed: int) -> None:
    drawn = draw(name, seed)
    walk(drawn.ds, drawn.expected, drawn.seed)


def _failing_stream(case: Case, read: ReadOptions) -> IterDataset[Any]:
    ds = case.build(Kit(read=read))
    return ds.to_iter_dataset(read) if isinstance(ds, MapDataset) else ds


@pytest.mark.parametrize("name", CASES)
@often(4)
@given(seeds)
def test_every_failure(name: str, seed: int) -> None:
    seed, case = seed_of(name, seed), CASES[name]
    expected = one_by_one(case.build(Kit()))
    walk(_failing_stream(case, random.Random(seed).choice(READ)), expected, seed)


@often(80)
@given(stream_programs(failing=True), seeds)
def test_random_pipelines(program: Step, seed: int) -> None:
    expected = one_by_one(build(bushel, program, threads=0))
    walk(build(bushel, program), expected, seed)


# Batches cut from columns, which are made one by one where that is faster: what comes before
# `batch`, and what comes after it.


class Unwanted(Exception):
    """An error of a user's own."""


def _first(batch: Any) -> int:
    return int(batch["id"][0])


def _fail_if(unwanted: bool, batch: Any) -> Any:
    if unwanted:
        raise Unwanted(f"{batch}")
    return batch


def _none_if(unwanted: bool, batch: Any) -> Any:
    return None if unwanted else batch


def _columns_without(rest: int, columns: Any) -> Any:
    return _fail_if(bool((columns["id"] % 40 == rest).any()), {"id": columns["id"] * 3})


BEFORE: dict[str, Callable[[Any, int], Any]] = {
    "shuffle": lambda ds, n: ds.shuffle(seed=n),
    "repeat": lambda ds, n: ds.repeat(n % 3 + 1),
    "slice": lambda ds, n: ds[n // 2 :],
    "map_batches": lambda ds, n: ds.map_batches(lambda columns: {"id": columns["id"] + n}),
    "failing map_batches": lambda ds, n: ds.map_batches(lambda c: _columns_without(n, c)),
}
BEHIND: dict[str, Callable[[Any, int], Any]] = {
    "map": lambda ds, n: ds.map(lambda x: {"id": x["id"] + n}),
    "failing map": lambda ds, n: ds.map(lambda x: _fail_if(_first(x) % (3 * n) == 5, x)),
    "dropping some": lambda ds, n: ds.map(lambda x: _none_if(_first(x) % n == 0, x)),
    "dropping most": lambda ds, n: ds.map(lambda x: _none_if(_first(x) % (5 * n) != 0, x)),
    "dropping the last": lambda ds, n: ds.map(lambda x: _none_if(_first(x) > 5 * n, x)),
    "map_with_index": lambda ds, n: ds.map_with_index(lambda i, x: {"id": x["id"] + n * i}),
    "random_map": lambda ds, n: ds.random_map(
        lambda x, rng: {"id": x["id"] + rng.integers(9)}, seed=n
    ),
}


def _steps(of: dict[str, Any], most: int) -> Any:
    return st.lists(st.tuples(st.sampled_from(sorted(of)), st.integers(1, 9)), max_size=most)


def _batches(count: int, before: Any, size: int, drop: bool, behind: Any) -> MapDataset[Any]:
    ds: MapDataset[Any] = MapDataset.source({"id": np.arange(count)})
    for name, number in before:
        ds = BEFORE[name](ds, number)
    ds = ds.batch(size, drop_remainder=drop)
    for name, number in behind:
        ds = BEHIND[name](ds, number)
    return ds


batches = st.builds(
    _batches,
    st.integers(0, 90),
    _steps(BEFORE, 2),
    st.integers(1, 5),
    st.booleans(),
    _steps(BEHIND, 3),
)


@often(100)
@given(batches, st.booleans(), seeds)
def test_random_batches(ds: MapDataset[Any], allow_nones: bool, seed: int) -> None:
    read = random.Random(seed).choice(READ)
    walk(ds.to_iter_dataset(read, allow_nones=allow_nones), by_position(ds, allow_nones), seed)


@contextmanager
def _strict_watch() -> Iterator[DatasetOptions]:
    """Makes filters fail that drop three of seven elements; usually it takes a thousand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quota, "_WINDOW", 7)
        yield DatasetOptions(filter_warn_threshold_ratio=None, filter_raise_threshold_ratio=0.4)


def _check_watch(ds: IterDataset[Any], scheduled: IterDataset[Any], seed: int) -> None:
    with _strict_watch() as options:
        expected = one_by_one(WithOptionsIterDataset(ds, options))
        with schedule(seed):
            # Not back and forth: what is watched is what comes after a restore.
            Walk(WithOptionsIterDataset(scheduled, options), expected, random.Random(seed)).go(0)


@often(100)
@given(st.sampled_from(sorted(PIPELINES)), seeds)
def test_filters_that_drop_too_much(name: str, seed: int) -> None:
    chance = random.Random(seed)
    kit = chance.choice(KITS)
    read = replace(kit, read=chance.choice(READ))
    _check_watch(stream_of(name, kit), stream_of(name, read), seed)


@often(40)
@given(batches, seeds)
def test_batches_dropped_too_often(ds: MapDataset[Any], seed: int) -> None:
    read = random.Random(seed).choice(READ)
    _check_watch(ds.to_iter_dataset(INLINE), ds.to_iter_dataset(read), seed)
