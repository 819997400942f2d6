"""Orders that are promised for ever, and positions at the edges of what there is."""

import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset, ReadOptions
from bushel.experimental import WindowShuffleMapDataset, index_shuffle
from bushel.order import byte_cipher, permutation
from bushel.order.permutation import (
    _encrypt_by_table,
    _whole_permutation,
    permute,
    permute_one,
)
from bushel.run.inline import compile_node


def test_the_order_of_a_shuffle_never_changes() -> None:
    # Checkpoints hold positions, so these numbers are a promise.
    assert list(MapDataset.range(10).shuffle(seed=0)) == [0, 4, 6, 7, 8, 3, 1, 9, 5, 2]
    assert [index_shuffle(i, 10**6, 42, 4) for i in range(4)] == [
        int(number) for number in MapDataset.range(10**6 + 1).shuffle(seed=42)[:4]
    ]


def test_each_epoch_has_an_order_of_its_own() -> None:
    ds = MapDataset.range(50).shuffle(seed=3).repeat(3)
    epochs = [list(ds[start : start + 50]) for start in (0, 50, 100)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    same = MapDataset.range(50).shuffle(seed=3).repeat(3, reseed_each_epoch=False)
    assert list(same) == epochs[0] * 3


@pytest.mark.parametrize("window", [1, 2, 3, 100, 129])
@pytest.mark.parametrize("part", [1.0, 0.1], ids=["all", "a few"])
def test_many_windows_at_once(window: int, part: float) -> None:
    seeds = np.arange(2**32 - 20, 2**32 + 20).repeat(window) & 0xFFFFFFFF
    places = np.tile(np.arange(window), 40)
    mine = np.random.default_rng(window).random(len(seeds)) < part
    images = permute(places[mine], window - 1, seeds[mine])
    # One by one, windows of two take thousands of steps.
    some = range(0, len(images), 1 + len(images) // 12)
    assert [images[k] for k in some] == [
        permute_one(int(places[mine][k]), window - 1, int(seeds[mine][k])) for k in some
    ]
    if part == 1:
        assert (np.sort(images.reshape(40, window)) == np.arange(window)).all()


@pytest.mark.parametrize("window", [129, 1000, 70_000])
def test_elements_of_many_windows(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(window)
    places, seeds = rng.integers(0, window, 200), rng.integers(0, 2**32, 200)
    calls = 0

    def counted(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        _encrypt_by_table(*arguments)

    monkeypatch.setattr("bushel.order.permutation._encrypt_by_table", counted)
    images = permute(places, window - 1, seeds)
    assert images.tolist() == [
        permute_one(int(place), window - 1, int(seed))
        for place, seed in zip(places, seeds, strict=True)
    ]
    # Of those outside of a window of n, two thirds come into it within 2**16 / n steps. The
    # last few do not go on together, which would take three times as many.
    assert calls <= 10 + 3 * 2**16 // window


@pytest.mark.parametrize("window", [30, 100, 128, 200, 256])
def test_elements_of_many_short_windows(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(window)
    count = 128
    places, seeds = rng.integers(0, window, count), rng.integers(0, 2**32, count)
    places[:2] = 0, window - 1
    calls = Counter[str]()

    def count_calls(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            calls[name] += 1
            return original(*arguments)

        monkeypatch.setattr(owner, name, counted)

    asked = _whole_permutation.cache_info().misses
    count_calls(permutation, "whole_permutation")
    count_calls(byte_cipher, "_walked")
    images = permute(places, window - 1, seeds)
    some = range(0, count, 1 + window // 10)
    assert [images[k] for k in some] == [
        permute_one(int(places[k]), window - 1, int(seeds[k])) for k in some
    ]
    assert len(set(zip(images.tolist(), seeds.tolist(), strict=True))) == count
    # All walk together; nearly none needs the whole order of its window.
    assert _whole_permutation.cache_info().misses == asked
    assert calls["whole_permutation"] <= 6
    assert calls["_walked"] * 16 <= 6 * 2**16 / window


def test_a_few_short_windows_that_are_wanted_again_are_kept() -> None:
    rng = np.random.default_rng(5)
    _whole_permutation.cache_clear()
    for _ in range(10):
        places, windows = rng.integers(0, 100, 24), rng.integers(0, 30, 24)
        images = permute(places, 99, windows + 10**6)
    assert images[0] == permute_one(int(places[0]), 99, int(windows[0]) + 10**6)
    assert 20 <= _whole_permutation.cache_info().misses <= 30


def test_orders_that_follow_each_other_look_ahead_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def noted(positions: Any, *others: Any) -> Any:
        asked.append(len(positions))
        return permute(positions, *others)

    monkeypatch.setattr("bushel.order.window_shuffle.permute", noted)
    ds = WindowShuffleMapDataset(MapDataset.range(10**6), window_size=1000, seed=3)
    ds = ds.shuffle(seed=1)
    evaluator = compile_node(ds._own_node())
    made = [x for start in range(0, 1600, 16) for x in evaluator.run(start, start + 16).rows()]
    # At first fewer, later sixteen blocks at a time.
    assert len(asked) <= 12
    assert made[::100] == [ds[k] for k in range(0, 1600, 100)]


@pytest.mark.parametrize("length", [10**9, 10**12, 2**62])
def test_any_length_takes_no_memory(length: int) -> None:
    ds = MapDataset.range(length).shuffle(seed=1)
    places = [0, 1, length // 2, length - 1]
    images = [ds[place] for place in places]
    assert len(set(images)) == len(images)
    assert all(image is not None and 0 <= image < length for image in images)
    assert next(iter(ds)) == images[0]


def test_endless_datasets_have_no_last_position() -> None:
    ds = MapDataset.range(7).shuffle(seed=1).repeat()
    assert len(ds) == sys.maxsize
    assert ds[10**15] in range(7)
    assert list(ds[10**15 : 10**15 + 3]) == [ds[10**15 + place] for place in range(3)]
    batch = ds.batch(4)[10**14]
    assert batch is not None and batch.shape == (4,)


def test_positions_beyond_64_bits() -> None:
    ds = MapDataset.range(10)
    assert ds[2**70] == 2**70 % 10
    assert ds[1:].shuffle(seed=1)[2**70] in range(1, 10)
    assert MapDataset.mix([ds, ds.map(lambda x: -x)])[2**66] in range(-10, 10)


def test_a_window_shuffle_looks_no_further_than_its_window() -> None:
    """To order a tiny window takes as long as to order a large one."""
    shuffled = WindowShuffleMapDataset(MapDataset.range(10**6), window_size=5, seed=987_654)
    before = _whole_permutation.cache_info().misses
    elements = iter(shuffled.to_iter_dataset(ReadOptions(num_threads=0)))
    assert {next(elements), next(elements)} < set(range(5))
    assert _whole_permutation.cache_info().misses - before <= 2


def test_window_shuffles_end_where_the_data_ends() -> None:
    shuffled = list(WindowShuffleMapDataset(MapDataset.range(8), window_size=4, seed=1))
    assert sorted(shuffled[:4]) == [0, 1, 2, 3]
    assert sorted(shuffled[4:]) == [4, 5, 6, 7]


@pytest.mark.parametrize("length", [0, 1, 7, 10, 12])
@pytest.mark.parametrize("parts", [1, 2, 3, 5, 11])
def test_parts_of_neighbours(length: int, parts: int) -> None:
    expected = [part.tolist() for part in np.array_split(np.arange(length), parts)]
    made = []
    for part in range(parts):
        numbers = MapDataset.source(list(range(length)))
        numbers.set_slice(slice(part, None, parts), sequential_slice=True)
        made.append(list(numbers))
    assert made == expected


def test_mix_in_proportion() -> None:
    ones, tens = MapDataset.range(6), MapDataset.range(10, 40)
    mixed = MapDataset.mix([ones, tens], [1, 3])
    assert len(mixed) == 24
    assert sum(number < 10 for number in mixed) == 6
    # The next epoch goes on where this one ended.
    assert np.array([mixed[24 + place] for place in range(24)]).max() == 39
