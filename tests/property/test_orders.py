"""Orders are arithmetic; lists are their definition."""

import itertools
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from bushel.core.node import Node
from bushel.core.positions import join_epochs, split_epochs
from bushel.order.concatenate import ConcatenateNode
from bushel.order.mix import MixNode, SelectNode, to_proportions
from bushel.order.permutation import permute, permute_one
from bushel.order.repeat import RepeatNode
from bushel.order.shuffle import ShuffleNode
from bushel.order.slice import SliceNode
from bushel.order.window_shuffle import WindowShuffleNode
from bushel.run.inline import compile_node
from bushel.sources.memory import RangeNode
from tests.property.profile import tried

lengths = st.integers(1, 60)
seeds = st.integers(0, 2**32 - 1)
position_lists = st.lists(st.integers(0, 400), max_size=30)
far_positions = st.lists(st.integers(-(10**12), 10**12), max_size=30)


def _range(length: int) -> RangeNode:
    return RangeNode(range(length))


@given(far_positions, lengths)
@tried
def test_split_epochs_is_divmod(positions: list[int], length: int) -> None:
    epochs, offsets = split_epochs(np.array(positions, dtype=np.int64), length)
    assert offsets.tolist() == [position % length for position in positions]
    expected = [position // length for position in positions]
    assert np.broadcast_to(epochs, len(positions)).tolist() == expected
    assert join_epochs(offsets, epochs, length).tolist() == positions


@given(st.integers(0, 2**40), st.integers(1, 20), lengths)
@tried
def test_split_epochs_of_a_run(start: int, count: int, length: int) -> None:
    positions = np.arange(start, start + count)
    epochs, offsets = split_epochs(positions, length)
    assert (np.asarray(epochs) * length + offsets).tolist() == positions.tolist()


@given(
    lengths,
    st.none() | st.integers(-70, 70),
    st.none() | st.integers(-70, 70),
    st.none() | st.integers(-9, 9).filter(bool),
    position_lists,
)
@tried
def test_slice(length: int, start: Any, stop: Any, step: Any, positions: list[int]) -> None:
    indices = slice(start, stop, step).indices(length)
    node = SliceNode(_range(length), *indices)
    kept = list(range(length))[start:stop:step]
    assert node.length() == len(kept)
    assume(kept)
    located = node.locate(np.array(positions, dtype=np.int64)).tolist()
    assert located == [
        kept[position % len(kept)] + position // len(kept) * length for position in positions
    ]


@given(lengths, st.integers(1, 5), st.booleans(), position_lists)
@tried
def test_repeat(length: int, epochs: int, reseed: bool, positions: list[int]) -> None:
    node = RepeatNode(_range(length), epochs, reseed)
    assert node.length() == length * epochs
    located = node.locate(np.array(positions, dtype=np.int64)).tolist()
    assert located == [place if reseed else place % length for place in positions]


@given(st.integers(1, 5000), seeds)
@tried
def test_a_permutation_is_a_bijection(length: int, seed: int) -> None:
    images = permute(np.arange(length), length - 1, seed)
    assert sorted(images.tolist()) == list(range(length))


@given(st.integers(2, 2**62), seeds, st.lists(st.integers(0, 2**62), min_size=1, max_size=12))
@tried
def test_a_permutation_is_one_position_at_a_time(
    length: int, seed: int, numbers: list[int]
) -> None:
    # Walking back into a small range takes long.
    assume(length > 2000)
    positions = np.array([number % length for number in numbers])
    images = permute(positions, length - 1, seed)
    assert images.tolist() == [permute_one(int(i), length - 1, seed) for i in positions]
    assert len(set(images.tolist())) == len(set(positions.tolist()))
    assert 0 <= images.min() <= images.max() < length


@given(
    st.sampled_from([2, 3, 127, 128, 129, 130, 4000, 4095, 4096, 4097, 4098, 70_000]),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 3)), min_size=1, max_size=90),
)
@tried
def test_permutations_of_several_seeds_at_once(length: int, pairs: list[tuple[int, int]]) -> None:
    positions = np.array([number % length for number, _ in pairs])
    each = np.array([seed for _, seed in pairs])
    together = permute(positions, length - 1, each)
    for seed in set(each.tolist()):
        mine = each == seed
        assert (together[mine] == permute(positions[mine], length - 1, seed)).all()


@given(lengths, seeds)
@tried
def test_shuffle_keeps_epochs_apart(length: int, seed: int) -> None:
    located = ShuffleNode(_range(length), seed).locate(np.arange(3 * length)).tolist()
    for epoch in range(3):
        mine = located[epoch * length : (epoch + 1) * length]
        assert sorted(mine) == list(range(epoch * length, (epoch + 1) * length))


@given(lengths, st.integers(1, 20), seeds)
@tried
def test_window_shuffle_keeps_windows_apart(length: int, window: int, seed: int) -> None:
    node = WindowShuffleNode(_range(length), window, seed)
    located = node.locate(np.arange(4 * window)).tolist()
    for number in range(4):
        mine = located[number * window : (number + 1) * window]
        assert sorted(mine) == list(range(number * window, (number + 1) * window))


def _check_choice(node: Any, expected: list[tuple[int, int]], positions: list[int]) -> None:
    """Checks that positions are located as a list of (part, position) says."""
    which, where = node.locate(np.array(positions, dtype=np.int64))
    chosen = [expected[position] for position in positions]
    assert which.tolist() == [part for part, _ in chosen]
    assert where.tolist() == [place for _, place in chosen]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.data())
@tried
def test_concatenate(sizes: list[int], data: st.DataObject) -> None:
    assume(sum(sizes))
    node = ConcatenateNode(tuple(map(_range, sizes)))
    assert node.length() == sum(sizes)
    expected = [
        (part, place + epoch * size)
        for epoch in range(4)
        for part, size in enumerate(sizes)
        for place in range(size)
    ]
    positions = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=30))
    _check_choice(node, expected, positions)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.data())
@tried
def test_mix_takes_turns(weights: list[int], data: st.DataObject) -> None:
    node = MixNode(tuple(_range(1000) for _ in weights), tuple(weights))
    which, where = node.locate(np.arange(200))
    # Each part's elements come in order, none twice and none left out.
    for part in range(len(weights)):
        mine = where[which == part].tolist()
        assert mine == list(range(len(mine)))
    expected = list(zip(which.tolist(), where.tolist(), strict=True))
    positions = data.draw(st.lists(st.integers(0, 199), max_size=30))
    _check_choice(node, expected, positions)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
@tried
def test_mix_spreads_evenly(weights: list[int]) -> None:
    total = sum(weights)
    node = MixNode(tuple(_range(1000) for _ in weights), tuple(weights))
    which, _ = node.locate(np.arange(3 * total))
    counts = np.zeros(len(weights))
    for taken, part in enumerate(which.tolist(), start=1):
        counts[part] += 1
        # Never further from its share than the parts that it has to share turns with.
        assert (abs(counts - taken * np.array(weights) / total) < len(weights)).all()
    for start in range(0, 3 * total, total):
        in_cycle = np.bincount(which[start : start + total], minlength=len(weights))
        assert in_cycle.tolist() == weights


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5))
@tried
def test_proportions_follow_the_weights(weights: list[float]) -> None:
    proportions = to_proportions(weights, len(weights))
    assert min(proportions) in (99, 100)
    for (one, other), (left, right) in zip(
        itertools.combinations(weights, 2), itertools.combinations(proportions, 2), strict=True
    ):
        assert abs(one / other - left / right) <= 0.03 * max(one / other, left / right)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), min_size=1, max_size=20))
@tried
def test_select(selection: list[tuple[int, int]]) -> None:
    node = SelectNode((_range(5), _range(6), _range(7)), selection)
    assert node.length() == len(selection)
    _check_choice(node, selection, list(range(len(selection))))


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("slice"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("shuffle"), seeds, st.just(0)),
        st.tuples(st.just("window"), st.integers(4, 20), seeds),
        st.tuples(st.just("repeat"), st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just("concatenate"), st.integers(1, 9), st.just(0)),
        st.tuples(st.just("mix"), st.integers(1, 9), st.integers(1, 3)),
    ),
    max_size=4,
)


def _chain(length: int, steps: Any) -> Node:
    """Builds a chain of orders."""
    node: Node = _range(length)
    for kind, one, other in steps:
        size = node.length()
        if kind == "slice":
            node = SliceNode(node, min(one, size - 1), size, other)
        elif kind == "shuffle":
            node = ShuffleNode(node, one)
        elif kind == "window":
            node = WindowShuffleNode(node, one, other)
        elif kind == "repeat":
            node = RepeatNode(node, one, bool(other))
        elif kind == "concatenate":
            node = ConcatenateNode((node, _range(one)))
        else:
            node = MixNode((node, _range(one)), (1, other))
    return node


@given(lengths, _steps, st.lists(st.integers(1, 40), min_size=1, max_size=6))
@tried
def test_runs_are_positions(length: int, steps: Any, sizes: list[int]) -> None:
    node = _chain(length, steps)
    assume(node.length() > 0)
    evaluator = compile_node(node)
    start = 0
    for size in sizes:
        positions = np.arange(start, start + size)
        run, at = evaluator.run(start, start + size), compile_node(node).at(positions)
        assert run.rows() == at.rows()
        assert run.positions.tolist() == at.positions.tolist() == positions.tolist()
        one_by_one = [compile_node(node).at(positions[i : i + 1]).rows()[0] for i in range(size)]
        assert run.rows() == one_by_one
        start += size
