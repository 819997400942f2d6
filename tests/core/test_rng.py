"""Generators of records: each starts where a fresh one would, and is nobody else's."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import MapDataset
from bushel.core import rng as own
from bushel.core.rng import Generators, KeyedGenerators, PositionGenerators, RngPool
from tests.property.profile import tried

Fresh = Callable[[int, int], np.random.Generator]
NUMBER = st.one_of(st.integers(0, 50), st.integers(0, 2**64 - 1))


def of_position(seed: int, position: int) -> np.random.Generator:
    # An array, since numpy makes floats of a list that has numbers beyond 2**63 beside others.
    counter = np.array([0, 0, 0, position], np.uint64)
    return np.random.Generator(np.random.Philox(seed, counter=counter))


def of_key(seed: int, index: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed + index))


KINDS: list[tuple[type[Generators], Fresh]] = [
    (PositionGenerators, of_position),
    (KeyedGenerators, of_key),
]


def draw(row: Any, rng: np.random.Generator) -> list[float]:
    # Whole words, and halves of them: one may be left over.
    return [row, rng.random(), int(rng.integers(0, 2**32, dtype=np.uint32)), rng.normal()]


@pytest.fixture(params=["written", "by numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "by numpy":
        monkeypatch.setattr(own, "_layout_is_known", lambda: False)
    yield


def test_this_numpy_is_known() -> None:
    assert own._layout_is_known()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("kind", "fresh"), KINDS)
@pytest.mark.parametrize("count", [1, 7, 9, 300, 2100])
def test_each_starts_where_a_fresh_one_would(
    kind: type[Generators], fresh: Fresh, count: int
) -> None:
    numbers = np.random.default_rng(count).integers(0, 2**63, count)
    expected = [draw(row, fresh(42, int(number))) for row, number in enumerate(numbers)]
    assert list(kind(42).results(draw, range(count), numbers)) == expected


@tried
@given(
    st.sampled_from(KINDS),
    st.sampled_from([0, 42, 2**63, 2**64 - 3, 2**64 + 5, 2**127]),
    st.lists(NUMBER, max_size=20),
)
def test_any_seed_and_number(kind: Any, seed: int, numbers: list[int]) -> None:
    make, fresh = kind
    expected = [draw(0, fresh(seed, number)) for number in numbers]
    assert list(make(seed).results(draw, [0] * len(numbers), numbers)) == expected


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("kind", "fresh"), KINDS)
def test_one_that_is_kept_goes_on_by_itself(kind: type[Generators], fresh: Fresh) -> None:
    kept: list[np.random.Generator] = []

    def keep_some(row: int, rng: np.random.Generator) -> float:
        if row % 5 == 0:
            kept.append(rng)
        return rng.random()

    made = list(kind(7).results(keep_some, range(40), np.arange(40)))
    assert made == [fresh(7, number).random() for number in range(40)]
    assert len(set(map(id, kept))) == len(kept)
    for number, rng in zip(range(0, 40, 5), kept, strict=True):
        expected = fresh(7, number)
        expected.random()
        assert rng.random() == expected.random()


def test_one_that_the_last_record_kept_is_not_used_again() -> None:
    generators, kept = PositionGenerators(7), []
    for position in range(3):
        list(generators.results(lambda _, rng: kept.append(rng), [0], [position]))
    assert [rng.random() for rng in kept] == [of_position(7, n).random() for n in range(3)]


@pytest.mark.parametrize("wrong", [-1, 2**64])
@pytest.mark.parametrize("before", [0, 3, 30])
def test_what_no_word_holds_fails_at_its_record(wrong: int, before: int) -> None:
    numbers = [*range(before), wrong, 0]
    made = PositionGenerators(1).results(draw, range(len(numbers)), numbers)
    assert [next(made)[0] for _ in range(before)] == list(range(before))
    with pytest.raises(OverflowError, match=f"from 0 to 2\\*\\*64, and got {wrong}"):
        next(made)


def test_a_function_that_reads_the_same_dataset_gets_another_one() -> None:
    inner = MapDataset.range(5).random_map(lambda x, rng: x + rng.random(), seed=3)
    seen = []

    def nested(x: int, rng: np.random.Generator) -> float:
        first = rng.random()
        seen.append(inner[x])
        return first + rng.random()

    outer = MapDataset.range(5).random_map(nested, seed=3)
    drawn = [of_position(3, x).random(2).sum() for x in range(5)]
    assert list(outer) == drawn
    assert seen == list(inner)


def test_a_numpy_that_is_not_known_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(own, "_KEY", 72)  # As if it lay elsewhere.
    own._layout_is_known.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "bushel"):
            made = list(PositionGenerators(42).results(draw, range(3), [0, 1, 2]))
    finally:
        own._layout_is_known.cache_clear()
    assert made == [draw(n, of_position(42, n)) for n in range(3)]
    assert "in a way that bushel does not know" in caplog.text


@pytest.mark.parametrize(("index", "op_seed"), [(0, 0), (5, 0), (5, 2), (2**62, 7)])
def test_a_pool_has_a_generator_for_each_operation_at_each_index(index: int, op_seed: int) -> None:
    pool = RngPool(42)
    used = pool.acquire_rng(1, op_seed=3)
    draw(0, used)
    pool.release_rng(used)
    expected = np.random.Generator(np.random.Philox(42, counter=[0, 0, op_seed, index]))
    assert draw(0, pool.acquire_rng(index, op_seed=op_seed)) == draw(0, expected)
