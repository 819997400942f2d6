"""Batches cut from columns are made one by one, when they are taken; nothing of it may show."""

import itertools
import time
import weakref
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset, ReadOptions
from bushel.core.options import DatasetOptions
from bushel.errors import FilterError
from bushel.run import inline, positional
from bushel.run.quota import DropQuota
from bushel.run.thread_time import Spent

BATCHES = 200


def numbers() -> MapDataset:
    """200 batches of four; cheap enough that they are made one by one after the first few."""
    return MapDataset.source(np.arange(4 * BATCHES)).batch(4)


def test_it_is_the_same_as_by_position() -> None:
    ds = numbers().map(lambda x: x + 1).map_with_index(lambda i, x: x * i).seed(3)
    ds = ds.random_map(lambda x, rng: x + rng.integers(1000))
    streamed = list(ds)
    assert len(streamed) == BATCHES
    for index in range(BATCHES):
        np.testing.assert_array_equal(streamed[index], ds[index])


def test_a_short_last_batch_and_epochs() -> None:
    ds = MapDataset.source(np.arange(4 * 50 + 3)).shuffle(seed=1).batch(4).map(lambda x: -x)
    streamed = list(ds.repeat(3))
    assert [len(batch) for batch in streamed[:51]] == [4] * 50 + [3]
    for index in range(3 * 51):
        np.testing.assert_array_equal(streamed[index], ds[index])


def test_batches_of_several_tables_and_states_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are located for some of them at a time, and none of that shows."""
    monkeypatch.setattr(inline, "_LAST_LOOK_AHEAD", 12)
    ds = MapDataset.source(np.arange(4 * BATCHES + 1)).shuffle(seed=2).batch(4).map(lambda x: -x)
    iterator = iter(ds)
    for index, batch in enumerate(iterator):
        np.testing.assert_array_equal(batch, ds[index])
        assert iterator.get_state()["next_index"] == index + 1
    assert index == BATCHES


def test_a_failing_map_fails_in_its_place_and_the_stream_goes_on() -> None:
    def picky(x: Any) -> Any:
        if x[0] == 4 * 150:
            raise KeyError("label")
        return x

    iterator = iter(numbers().map(picky))
    for index in range(150):
        assert next(iterator)[0] == 4 * index
    with pytest.raises(KeyError, match="label") as caught:
        next(iterator)
    assert caught.value.__notes__ == ["bushel: raised in `map(picky)` at position 150."]
    assert iterator.get_state()["next_index"] == 151
    assert [x[0] for x in iterator] == list(range(4 * 151, 4 * BATCHES, 4))


def test_a_failing_map_of_columns_names_its_element() -> None:
    def picky(columns: Any) -> Any:
        if (columns == 4 * 150 + 1).any():
            raise ValueError("not this one")
        return columns * 2

    iterator = iter(MapDataset.source(np.arange(4 * BATCHES)).map_batches(picky).batch(4))
    for index in range(150):
        assert next(iterator)[0] == 8 * index
    with pytest.raises(ValueError, match="not this one") as caught:
        next(iterator)
    assert caught.value.__notes__ == ["bushel: raised in `map_batches(picky)` at position 601."]
    assert next(iterator)[0] == 8 * 151


def test_strings_made_by_a_map_of_columns_are_as_wide_as_in_their_own_batch() -> None:
    lengths = np.array([1] * 400 + [5] * 400)
    ds = MapDataset.source(lengths).map_batches(
        lambda n: {"name": np.array(["x" * int(k) for k in n])}
    )
    widths = {batch["name"].dtype.itemsize // 4 for batch in ds.batch(4)}
    assert widths == {1, 5}


def test_every_state_within_is_one_to_go_back_to() -> None:
    ds = numbers().map(lambda x: x * 3)
    iterator = iter(ds)
    states = []
    for _ in range(BATCHES):
        next(iterator)
        states.append(iterator.get_state())
    for taken, state in enumerate(states, start=1):
        other = iter(ds)
        other.set_state(state)
        rest = next(other, None)
        assert (rest is None) == (taken == BATCHES)
        if rest is not None:
            assert rest[0] == 12 * taken
    # Back and forth on one and the same.
    for taken in (150, 3, 199, 80):
        iterator.set_state(states[taken - 1])
        assert [next(iterator)[0], bushel.experimental.get_next_index(iterator)] == [
            12 * taken,
            taken + 1,
        ]


def test_dropped_batches_are_absent() -> None:
    ds = numbers().map(lambda x: None if x[0] % 3 else x).map(lambda x: x + 1)
    iterator = iter(ds)
    kept = [int(x[0]) for x in iterator]
    assert kept == [first + 1 for first in range(0, 4 * BATCHES, 4) if first % 3 == 0]


def test_dropped_batches_are_absent_however_few_are_made_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As where a machine is so slow that blocks stay small: all of one may be dropped.
    monkeypatch.setattr(positional, "_MOST_ON_DEMAND", 2)
    ds = numbers().map(lambda x: x if x[0] % 40 == 0 else None)
    iterator = iter(ds)
    kept = []
    for batch in iterator:
        kept.append(int(batch[0]))
        other = iter(ds)
        other.set_state(iterator.get_state())
        assert next(other, [None])[0] == next(
            (first for first in range(kept[-1] + 4, 4 * BATCHES, 4) if first % 40 == 0), None
        )
    assert kept == list(range(0, 4 * BATCHES, 40))


def test_the_watch_over_dropped_elements_counts_them() -> None:
    ds = MapDataset.source(np.arange(8000)).batch(4).map(lambda x: x if x[0] < 40 else None)
    stream = bushel.experimental.WithOptionsIterDataset(
        ds.to_iter_dataset(), DatasetOptions(filter_raise_threshold_ratio=0.9)
    )
    with pytest.raises(FilterError, match=r"99\.00% of the last 1000"):
        list(stream)


def test_an_interrupt_loses_nothing() -> None:
    calls = 0

    def interrupted(x: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 120:
            raise KeyboardInterrupt
        return x

    iterator = iter(numbers().map(interrupted))
    got: list[int] = []
    while len(got) < BATCHES:
        try:
            got.extend(int(x[0]) for x in iterator)
        except KeyboardInterrupt:
            assert iterator.get_state()["next_index"] == len(got) > 100
    assert got == list(range(0, 4 * BATCHES, 4))


def test_nothing_is_kept_but_what_the_user_has() -> None:
    raw: list[weakref.ref[Any]] = []

    def remember(x: Any) -> Any:
        raw.append(weakref.ref(x))
        return x + 1

    # Without threads, which a busy machine may make look worth a try.
    ds = numbers().map(remember).to_iter_dataset(ReadOptions(num_threads=0))
    iterator = iter(ds)
    made = None
    for _ in range(150):
        made = next(iterator)
    assert len(raw) < 150 + 8  # Few were made ahead.
    assert all(batch() is None for batch in raw)
    kept = weakref.ref(made)
    del made
    assert kept() is None


def test_work_is_told_from_the_user_while_somebody_looks_at_the_lock() -> None:
    """None is made in the user's time then."""
    stream = positional.PositionalStream(
        numbers()._own_node(), ReadOptions(), True, DropQuota("batch", DatasetOptions())
    )
    while stream.on_demand() is None:
        assert stream.pull(1) is not None
    stream.pull(1)
    choice = stream._threads.choice
    # What the pulls above really took counts, too: on a busy machine one reading is not enough.
    for _ in range(100):
        if choice.looking:
            break
        choice.learn_work(1, Spent(1.0, 1.0))
        choice.learn_cycle(1, 1.0, 0.0)
    assert choice.looking
    assert stream.on_demand() is None
    stream.close()


def test_one_that_was_slow_does_not_stand_for_all_that_were_made_in_the_meantime() -> None:
    """It may have located the positions of a thousand: all together took no longer than it is."""
    stream = positional.PositionalStream(
        numbers()._own_node(), ReadOptions(), True, DropQuota("batch", DatasetOptions())
    )
    while stream.on_demand() is None:
        assert stream.pull(1) is not None
    assert stream.pull(1) is not None
    stream._choice._inline.forget()
    began = time.perf_counter()
    made = stream.on_demand()
    assert made is not None
    few = list(itertools.islice(made.rows, 10))
    assert stream.pull(1) is not None
    assert 0.0 < stream._choice._inline.work * (len(few) + 1) <= time.perf_counter() - began
    stream.close()
