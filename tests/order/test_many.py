"""Parts of a mixture that are evaluated together give what each gives by itself."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bushel import MapDataset
from bushel.core.block import Block
from bushel.errors import PlanError
from bushel.order import permutations
from bushel.run import choose
from bushel.run.inline import compile_node
from tests.property.profile import tried


def double(x: Any) -> Any:
    return x * 2


def fail_on_sevens(x: Any) -> Any:
    if int(x) % 7 == 3:
        raise ValueError(f"{x} is bad")
    return x


def is_odd(x: Any) -> bool:
    return int(x) % 2 == 1


class Own:
    """A source without anything special."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: int) -> int:
        if key % 11 == 10:
            raise KeyError(key)
        return 1000 + key


class Together(Own):
    """One that reads many at once."""

    def __getitems__(self, keys: list[int]) -> list[int]:
        return [self[key] for key in keys]


class Selection:
    """Says whose element is at a position, but not at all of them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[int, int]:
        if self._seed % 3 == 0 and index == 20:
            raise LookupError("nothing there")
        return (index + self._seed) % 2, index % 3


SOURCES: list[Any] = [
    lambda n: MapDataset.range(n),
    lambda n: MapDataset.range(5, 5 + 3 * n, 3),
    lambda n: MapDataset.source(list(range(n))),
    lambda n: MapDataset.source(np.arange(n, dtype=np.int32)),
    lambda n: MapDataset.source(np.arange(n, dtype=np.float64)),
    lambda n: MapDataset.source(Own(n)),
    lambda n: MapDataset.source(Together(n)),
]
STEPS: list[Any] = [
    lambda ds, seed: ds.shuffle(seed=seed),
    lambda ds, seed: ds[1 + seed % 3 :: 1 + seed % 2],
    lambda ds, seed: ds.repeat(1 + seed % 3),
    lambda ds, seed: ds.repeat(2, reseed_each_epoch=False),
    lambda ds, seed: ds.repeat(),
    lambda ds, seed: ds.map(double),
    lambda ds, seed: ds.map(lambda x: x + seed),
    lambda ds, seed: ds.map(fail_on_sevens),
    lambda ds, seed: ds.map_with_index(lambda i, x: (i, x)).map(lambda pair: pair[1]),
    lambda ds, seed: ds.random_map(lambda x, rng: x + int(rng.integers(9)), seed=seed),
    lambda ds, seed: ds.filter(is_odd),
    lambda ds, seed: ds.batch(2).map(lambda b: b[0]),
    lambda ds, seed: MapDataset.mix([ds, ds.map(double)], [1, 1 + seed % 3]),
    lambda ds, seed: MapDataset.concatenate([ds[:2], ds[: 10**6].shuffle(seed=seed)]),
    lambda ds, seed: MapDataset.select_from_datasets([ds, ds], Selection(seed)),
]

_parts = st.tuples(
    st.integers(0, len(SOURCES) - 1),
    st.sampled_from([1, 2, 9, 40, 5000]),
    st.lists(st.integers(0, len(STEPS) - 1), max_size=3),
    st.integers(0, 2**31),
)


def dataset(kind: int, length: int, steps: list[int], seed: int) -> Any:
    made = SOURCES[kind](length + 3)
    for step in steps:
        with suppress(PlanError):  # A batch after a filter, and the like.
            made = STEPS[step](made, seed)
    return made


def evaluated(mixed: Any, enough: float, positions: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(choose, "_TOGETHER", enough)
    block: Block = compile_node(mixed._own_node()).at(np.array(positions, dtype=np.int64))
    rows = [(type(row), None if row is None else float(row)) for row in block.rows()]
    failure = None if block.failure is None else block.failure.release()
    notes = getattr(failure, "__notes__", None)
    return rows, block.positions.tolist(), repr(failure), notes


@given(st.data())
@tried
def test_together_or_each_by_itself(data: st.DataObject) -> None:
    # Alike, and not alike.
    kind, length, steps, _ = data.draw(_parts)
    seeds = data.draw(st.lists(st.integers(0, 2**31), min_size=1, max_size=6))
    parts = [dataset(kind, length, steps, seed) for seed in seeds]
    parts += [dataset(*part) for part in data.draw(st.lists(_parts, max_size=3))]
    assume(all(len(part) for part in parts))  # (A slice of a slice may be empty.)
    if data.draw(st.booleans()):
        mixed = MapDataset.mix(parts, data.draw(st.permutations(range(1, len(parts) + 1))))
    else:
        mixed = MapDataset.concatenate([part[: min(len(part), 10**6)] for part in parts])
    most = min(3 * max(1, len(mixed)), 20_000)
    positions = data.draw(st.lists(st.integers(0, most), min_size=1, max_size=40))
    if data.draw(st.booleans()):
        positions = list(range(min(positions), min(positions) + 64))
    with pytest.MonkeyPatch.context() as monkeypatch:
        by_itself = evaluated(mixed, 1e18, positions, monkeypatch)
        together = evaluated(mixed, -1e18, positions, monkeypatch)
    assert together == by_itself


def test_far_beyond_the_first_epoch() -> None:
    parts = [MapDataset.range(5 + part).shuffle(seed=part).repeat()[3:] for part in range(3)]
    mixed = MapDataset.mix(parts)
    positions = [2**62 - 1, 2**62, 3 * 2**61]
    with pytest.MonkeyPatch.context() as monkeypatch:
        by_itself = evaluated(mixed, 1e18, positions, monkeypatch)
        assert evaluated(mixed, -1e18, positions, monkeypatch) == by_itself


@pytest.mark.parametrize("kind", ["range", "list", "array"])
def test_sources_that_several_parts_have(kind: str) -> None:
    """Each is as long as its own source, in later epochs, too."""
    make: Any = {"range": range, "list": lambda n: list(range(n)), "array": np.arange}[kind]
    short, long = make(5), make(13)
    parts = [MapDataset.source(source) for source in (long, long, short, long, short)]
    mixed = MapDataset.mix([part.map(double) for part in parts])
    positions = list(range(200))
    with pytest.MonkeyPatch.context() as monkeypatch:
        by_itself = evaluated(mixed, 1e18, positions, monkeypatch)
        assert evaluated(mixed, -1e18, positions, monkeypatch) == by_itself


@pytest.mark.parametrize("block", [1, 2, 7, 64])
def test_short_and_long_shuffles_in_one_mixture(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block may have positions of the long ones only, or of the short ones."""
    monkeypatch.setattr(choose, "_TOGETHER", -1e18)
    parts = [MapDataset.range(n).shuffle(seed=n).repeat() for n in (50_000, 30)]
    mixed = MapDataset.mix(parts, weights=[0.9, 0.1])
    evaluator = compile_node(mixed._own_node())
    expected = [int(mixed[i]) for i in range(256)]
    found: list[int] = []
    for start in range(0, 256, block):
        found += [int(x) for x in evaluator.run(start, min(start + block, 256)).rows()]
    assert found == expected


def test_the_first_element_fails_of_parts_with_unlike_steps() -> None:
    sources = [MapDataset.source(Own(11)) for _ in range(5)]
    parts = [source[10:].map(lambda x, n=n: (x, n)) for n, source in enumerate(sources)]
    mixed = iter(MapDataset.mix(parts).to_iter_dataset())
    for _ in parts:
        with pytest.raises(KeyError):
            next(mixed)
    with pytest.raises(StopIteration):
        next(mixed)


@pytest.mark.parametrize("inner", ["mix", "concatenate"])
def test_parts_within_parts_are_read_together(inner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    located: list[int] = []
    permute_each = permutations.permute_each

    def noted(positions: Any, *more: Any) -> Any:
        located.append(len(positions))
        return permute_each(positions, *more)

    monkeypatch.setattr(permutations, "permute_each", noted)
    parts = [
        getattr(MapDataset, inner)(
            [MapDataset.range(10**6).shuffle(seed=10 * part + n) for n in range(5)]
        )
        for part in range(40)
    ]
    mixed = MapDataset.mix(parts)
    positions = list(range(4000))
    together = evaluated(mixed, -1e18, positions, monkeypatch)
    # All shuffles of all parts in one go.
    assert located == [len(positions)]
    assert together == evaluated(mixed, 1e18, positions, monkeypatch)


@pytest.mark.parametrize("together", [-1e18, 1e18])
@pytest.mark.parametrize("empty", [MapDataset.range(0), MapDataset.range(0).shuffle(1)])
@pytest.mark.parametrize("is_within", [False, True])
def test_a_selection_map_that_chooses_an_empty_part_fails_there(
    together: float, empty: MapDataset[int], is_within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "_TOGETHER", together)
    selection = [(k % 3, k) for k in range(20)]
    selection[11] = (3, 11)
    chosen = MapDataset.select_from_datasets([*[MapDataset.range(100)] * 3, empty], selection)
    if is_within:
        chosen = MapDataset.mix([chosen])
    events: list[Any] = []
    with iter(chosen.to_iter_dataset()) as iterator:
        while len(events) < 20:
            try:
                events.append(next(iterator))
            except ZeroDivisionError:
                events.append("error")
    assert events == [*range(11), "error", *range(12, 20)]
