"""The permutation after every shuffle is Grain's, bit for bit."""

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel.order.permutation import permute, permute_one
from tests.grain.oracle import assert_same, examples, outcome

seeds = st.integers(0, 2**32 - 1)
# Half of them next to a power of two, where the width of the cipher changes.
lengths = st.one_of(
    st.integers(1, 2**40),
    st.builds(lambda bits, off: max(1, 2**bits + off), st.integers(0, 40), st.integers(-2, 2)),
)
# Up to 1024 Grain accepts; the generator of keys changes its stride at 7, 39, 68 and 623.
rounds = st.one_of(st.just(4), st.integers(2, 512).map(lambda half: 2 * half))


def _grain(index: int, max_index: int, seed: int, count: int) -> int:
    if index == max_index and _one_too_many(max_index):
        return index
    shuffled: int = grain.experimental.index_shuffle(
        index, max_index=max_index, seed=seed, rounds=count
    )
    return shuffled


def _one_too_many(max_index: int) -> bool:
    """Whether the cipher of this length is one value too small.

    With 4**k + 1 positions Grain sends the last one where it sends the first, so one record
    comes twice and one never. bushel leaves the last one in its place: a permutation, equal
    to Grain's everywhere else.
    """
    return max_index in {4**k for k in range(8, 32)}


def _positions(length: int, count: int, data: st.DataObject) -> list[int]:
    return data.draw(st.lists(st.integers(0, length - 1), min_size=count, max_size=count))


@examples(150)
@given(lengths, seeds, st.data())
def test_one_position(length: int, seed: int, data: st.DataObject) -> None:
    (index,) = _positions(length, 1, data)
    # A short length walks through thousands of values, too many to do with many rounds.
    count = data.draw(rounds) if length > 2**13 else 4
    expected = _grain(index, length - 1, seed, count)
    assert permute_one(index, length - 1, seed, count) == expected
    shuffled = bushel.experimental.index_shuffle(
        index, max_index=length - 1, seed=seed, rounds=count
    )
    assert_same(expected, shuffled)


@examples(100)
@given(lengths, seeds, st.data())
def test_many_positions(length: int, seed: int, data: st.DataObject) -> None:
    positions = _positions(length, data.draw(st.integers(0, 40)), data)
    expected = [_grain(index, length - 1, seed, 4) for index in positions]
    images = permute(np.array(positions, dtype=np.int64), length - 1, seed)
    assert images.dtype == np.int64
    assert images.tolist() == expected


@examples(100)
@given(lengths, st.data())
def test_many_seeds_at_once(length: int, data: st.DataObject) -> None:
    """As when a block of positions reaches over several epochs or windows."""
    count = data.draw(st.integers(1, 40))
    positions = _positions(length, count, data)
    some = st.lists(seeds, min_size=1, max_size=3).flatmap(
        lambda few: st.lists(st.sampled_from(few), min_size=count, max_size=count)
    )
    each = data.draw(some)
    expected = [_grain(i, length - 1, seed, 4) for i, seed in zip(positions, each, strict=True)]
    images = permute(np.array(positions, dtype=np.int64), length - 1, np.array(each))
    assert images.tolist() == expected


@pytest.mark.parametrize("bits", range(1, 17))
def test_is_a_permutation(bits: int) -> None:
    """Short lengths walk longest, and every position must be hit once."""
    for length in (2**bits - 1, 2**bits, 2**bits + 1):
        images = permute(np.arange(length), length - 1, seeds=bits)
        assert np.array_equal(np.sort(images), np.arange(length))
        sample = {0, length // 3, length - 1}
        expected = {index: _grain(index, length - 1, bits, 4) for index in sample}
        assert {index: int(images[index]) for index in sample} == expected


@pytest.mark.parametrize("bits", [16, 24, 40, 62])
def test_lengths_of_a_power_of_four_and_one(bits: int) -> None:
    max_index = 2**bits
    repeated = grain.experimental.index_shuffle(max_index, max_index=max_index, seed=3, rounds=4)
    assert repeated == _grain(0, max_index, 3, 4)
    positions = np.array([*range(10), max_index])
    expected = [_grain(index, max_index, 3, 4) for index in positions.tolist()]
    assert permute(positions, max_index, 3).tolist() == expected
    assert permute_one(max_index, max_index, 3) == max_index


@pytest.mark.parametrize("max_index", [2**62 - 1, 2**63 - 2, 2**63 - 1])
def test_the_longest_lengths(max_index: int) -> None:
    positions = np.array([0, 1, 5, 2**40, max_index // 3, max_index - 1, max_index])
    expected = [_grain(index, max_index, 9, 4) for index in positions.tolist()]
    assert permute(positions, max_index, 9).tolist() == expected
    assert [permute_one(index, max_index, 9) for index in positions.tolist()] == expected


@pytest.mark.parametrize(
    ("index", "max_index", "seed", "count"),
    [
        (-1, 10, 1, 4),
        (11, 10, 1, 4),
        (0, -1, 1, 4),
        (5, 10, 1, 3),
        (5, 10, 1, 2),
        (5, 10, 1, 0),
        (5, 10, 1, 1026),
        (5, 10, 1, -2),
        (5, 10, -1, 4),
        (5, 10, 2**32, 4),
        (5, 2**63, 1, 4),
        (5.0, 10, 1, 4),
    ],
)
def test_refuses_what_grain_refuses(index: int, max_index: int, seed: int, count: int) -> None:
    arguments = (index, max_index, seed, count)
    expected = outcome(lambda: grain.experimental.index_shuffle(*arguments))
    assert_same(expected, outcome(lambda: bushel.experimental.index_shuffle(*arguments)))
