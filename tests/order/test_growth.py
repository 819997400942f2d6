"""What an element of a mixture costs does not grow with the number of its parts: by counting."""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from bushel import IterDataset, MapDataset, ReadOptions, WeightSchedule
from bushel.core.cursor import Cursor
from bushel.core.node import Node
from bushel.experimental import InterleaveIterDataset
from bushel.order import line_shares, pattern, permutation, permutations, shares, shuffle
from bushel.order.pattern import Pattern
from bushel.order.stream_mix import MixStream
from bushel.run.inline import compile_node
from bushel.run.positional import PositionalStream
from bushel.sources.memory import RangeNode

INLINE = ReadOptions(0, 0)
PARTS = pytest.mark.parametrize("parts", [4, 1000])


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts calls, and positions that are located, while a test runs."""
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str, kind: str, size: Callable[..., int] = lambda *_: 1) -> None:
        original = getattr(owner, name)

        def counting(*args: Any, **more: Any) -> Any:
            counted[kind] += size(*args)
            return original(*args, **more)

        monkeypatch.setattr(owner, name, counting)

    count(shuffle, "permute", "located", lambda positions, *_: len(positions))
    count(permutations, "permute_each", "located", lambda positions, *_: len(positions))
    count(RangeNode, "fetch", "fetches")
    count(Pattern, "_make", "stretches")
    count(Pattern, "_locate_one", "located one by one")
    for owner, name in ((shares, "exact_shares"), (line_shares, "_shares")):
        count(owner, name, "shares")
        count(owner, name, "shares computed", lambda weights, *_: weights.size)
    count(PositionalStream, "pull", "pulls")
    for name in ("take", "show", "put_back"):
        count(Cursor, name, "touched")
    # Of the elements that a mixture gives, nobody may have asked for the last ones.
    count(MixStream, "_chunk", "given", lambda _, which, *__: len(which))
    return counted


def shuffled(parts: int) -> list[MapDataset[int]]:
    return [MapDataset.range(10_000).shuffle(seed=seed) for seed in range(parts)]


def node_of(dataset: Any) -> Node:
    node: Node = dataset._own_node()
    return node


@PARTS
@pytest.mark.parametrize("size", [1, 16, 256])
def test_mixed_by_position(parts: int, size: int, counts: Counter[str]) -> None:
    blocks = max(1, 2048 // size)
    evaluator = compile_node(node_of(MapDataset.mix(shuffled(parts))))
    for block in range(blocks):
        evaluator.run(block * size, (block + 1) * size)
    # Each position once, unless its part was read on and on; and all parts of a block at once.
    assert counts["located"] <= 20 * blocks * size
    assert counts["fetches"] <= 4 * blocks
    assert counts["stretches"] <= 2
    assert counts["located one by one"] <= pattern._AS_MANY


def test_weights_that_hardly_repeat(counts: Counter[str]) -> None:
    weights = [100 + 7 * part % 991 for part in range(1000)]
    evaluator = compile_node(node_of(MapDataset.mix(shuffled(1000), weights)))
    for block in range(512):
        evaluator.run(block * 64, (block + 1) * 64)
    assert counts["stretches"] == 512 * 64 // pattern._STRETCH


@PARTS
def test_concatenated_and_shuffled(parts: int, counts: Counter[str]) -> None:
    evaluator = compile_node(node_of(MapDataset.concatenate(shuffled(parts)).shuffle(seed=1)))
    for block in range(16):
        evaluator.run(block * 256, (block + 1) * 256)
    assert counts["located"] <= 20 * 16 * 256
    assert counts["fetches"] <= 4 * 16


@PARTS
@pytest.mark.parametrize("weights", ["equal", "one large"])
def test_streams(parts: int, weights: str, counts: Counter[str]) -> None:
    streams = [part.to_iter_dataset(INLINE) for part in shuffled(parts)]
    unlike = [1000, *[1] * (parts - 1)]
    mixed = IterDataset.mix(streams, None if weights == "equal" else unlike)
    for count in (640, 5000):
        counts.clear()
        assert len(list(islice(mixed, count))) == count
        # However large the chunks are: only parts that give something are touched, and what is
        # read of each is in proportion to what it gives.
        given = counts["given"]
        assert given >= count
        assert counts["touched"] <= given + 10
        assert counts["pulls"] <= given + 10
        assert counts["located"] <= 20 * given + 1000


@pytest.mark.parametrize("parts", [4, 150])
def test_scheduled(parts: int, counts: Counter[str]) -> None:
    streams = [part.to_iter_dataset(INLINE) for part in shuffled(parts)]
    ramp = WeightSchedule.linear([(0, [1.0] * parts), (10_000, list(range(1, parts + 1)))])
    iterator = iter(IterDataset.mix(streams, ramp))
    for _ in range(2000):
        next(iterator)
    # For each part of some blocks, at the most.
    assert counts["shares"] <= 3 * parts


@PARTS
@pytest.mark.parametrize("how", ["steps", "slow ramp", "function"])
def test_weights_that_stay_for_a_while(how: str, parts: int, counts: Counter[str]) -> None:
    weights = [1.0 + part % 7 for part in range(parts)]
    others = [1.0 + part % 3 for part in range(parts)]
    schedule: Any = {
        "steps": WeightSchedule.steps([(0, weights), (4000, others)]),
        "slow ramp": WeightSchedule.linear([(0, weights), (10**10, others)]),
        "function": lambda step: weights if step < 4000 else others,
    }[how]
    iterator = iter(IterDataset.mix([part.to_iter_dataset() for part in shuffled(parts)], schedule))
    for _ in range(6000):
        next(iterator)
    # Of a thousand parts no more than some for each element.
    assert counts["shares computed"] <= 8 * counts["given"]


@PARTS
@pytest.mark.parametrize("length", [50, 10_000])
def test_interleaved(
    parts: int, length: int, counts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever each costs: how much is read at once is learned from it.
    monkeypatch.setattr("bushel.order.interleave.SOON_SECONDS", 1000.0)
    ranges = [MapDataset.range(length).to_iter_dataset(INLINE) for _ in range(50 * parts // 40)]
    elements = 40 * parts
    stream = InterleaveIterDataset(ranges, cycle_length=parts)
    assert len(list(islice(stream, elements))) == elements
    # A few of each stream at first, then many.
    assert counts["pulls"] <= elements / 3
    assert counts["touched"] <= elements / 3


def test_first_elements_of_many_short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make all of a shuffle takes as long as the first elements of hundreds of them."""
    made: list[int] = []

    def noted(max_index: int, seed: int) -> Any:
        made.append(seed)
        return permutation.whole_permutation(max_index, seed)

    monkeypatch.setattr(permutations, "whole_permutation", noted)
    parts = [MapDataset.range(500).shuffle(seed=seed) for seed in range(200)]
    evaluator = compile_node(node_of(MapDataset.mix(parts)))
    rows: list[int] = []
    for block in range(4):
        rows += evaluator.run(400 * block, 400 * (block + 1)).rows()
    assert not made
    for block in range(4, 12):
        rows += evaluator.run(400 * block, 400 * (block + 1)).rows()
    assert sorted(made) == list(range(200))
    assert rows == [part[turn] for turn in range(24) for part in parts]


def test_interleaved_short_streams_walk_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a range of 200 an element walks hundreds of steps to its place."""
    walked: list[int] = []
    walk_one = permutation._walk_one

    def noted(value: int, *more: Any) -> int:
        walked.append(value)
        return walk_one(value, *more)

    monkeypatch.setattr(permutation, "_walk_one", noted)
    parts = [MapDataset.range(200).shuffle(seed=seed).to_iter_dataset() for seed in range(40)]
    assert len(list(InterleaveIterDataset(parts, cycle_length=4))) == 40 * 200
    assert len(walked) <= 40 * 16


@pytest.mark.parametrize("many", [1, 10**6])
def test_patterns_are_what_each_part_would_say(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # By plain numbers, or by arrays.
    monkeypatch.setattr(pattern, "_MANY_PARTS", many)
    rng = np.random.default_rng(0)
    for most in (1, 3, 1000, 10**6, 10**12):
        made = Pattern(rng.integers(1, most + 1, 40).tolist())
        for start in (0, 1000, 2**40):
            run = np.arange(start, start + 500)
            expected = [part.tolist() for part in made._by_parts(run)]
            for cut in (1, 20, 500):  # One by one at first, then by stretches.
                pieces = [made.locate(run[at : at + cut]) for at in range(0, 500, cut)]
                which, where = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
                assert [which.tolist(), where.tolist()] == expected
            scattered = rng.permutation(run)
            assert np.array_equal(made.locate(scattered), made._by_parts(scattered))
