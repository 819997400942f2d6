"""Parts of streams: against plain Python, from every state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions
from bushel.errors import BatchError, PlanError
from tests.contract.events import events_of, is_error, pull_events, run_events, wants_from
from tests.contract.pipelines import Kit
from tests.property.profile import tried
from tests.streams.compare import assert_resumes, through_json
from tests.workers.streams import assert_same_events, with_workers

INLINE = ReadOptions(0, 0)
lengths = st.integers(0, 30)
few = st.integers(0, 12)
sizes = st.integers(1, 7)


class CountingSource:
    """Integers, and which of them were read."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.read: list[int] = []

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: int) -> int:
        self.read.append(key)
        return key


def thirds_dropped(length: int) -> tuple[IterDataset[Any], list[int]]:
    stream = MapDataset.range(length).to_iter_dataset(INLINE).filter(lambda x: x % 3 > 0)
    return stream, [x for x in range(length) if x % 3]


def windows_of(elements: Sequence[int], size: int, stride: int, drop: bool) -> list[Any]:
    """What `windows` is to give."""
    made = [elements[start : start + size] for start in range(0, len(elements), stride)]
    whole = [window for window in made if len(window) == size]
    in_whole = (len(whole) - 1) * stride + size if whole else 0
    rest = made[len(whole) : len(whole) + 1] if in_whole < len(elements) else []
    return [np.array(window) for window in whole + ([] if drop else rest)]


@tried
@given(lengths, few, few)
def test_take_and_skip(length: int, first: int, second: int) -> None:
    stream, expected = thirds_dropped(length)
    assert_resumes(stream.take(first), expected[:first])
    assert_resumes(stream.skip(first), expected[first:])
    assert_resumes(stream.skip(first).take(second), expected[first:][:second])
    assert_resumes(stream.take(first).skip(second), expected[:first][second:])


@tried
@given(lengths, few, sizes)
def test_skip_by_position(length: int, count: int, size: int) -> None:
    stream = MapDataset.range(length).to_iter_dataset(INLINE)
    assert_resumes(stream.skip(count).skip(1), list(range(length))[count + 1 :])
    batches = [batch.tolist() for batch in stream.batch(size)]
    assert [batch.tolist() for batch in stream.batch(size).skip(count)] == batches[count:]
    windows = [window.tolist() for window in stream.windows(size, 2)]
    assert [window.tolist() for window in stream.windows(size, 2).skip(count)] == windows[count:]
    counted = stream.enumerate(10).skip(count)
    assert_resumes(counted, list(enumerate(range(length), 10))[count:])


def test_skip_reads_nothing_where_positions_are_known() -> None:
    source = CountingSource(10**9)
    stream = MapDataset.source(source).to_iter_dataset(INLINE).map(lambda x: x + 1)
    assert next(iter(stream.skip(10**8))) == 10**8 + 1
    assert min(source.read) == 10**8


def test_skip_passes_over_positions_whatever_is_there() -> None:
    odd_ones_none = MapDataset.range(10).map(lambda x: None if x % 2 else x)
    assert list(odd_ones_none.to_iter_dataset(INLINE).skip(3)) == [4, 6, 8]
    # A filter says that it leaves elements out, and they are not counted.
    even = MapDataset.range(10).filter(lambda x: x % 2 == 0)
    assert list(even.to_iter_dataset(INLINE).skip(3)) == [6, 8]
    assert list(even.to_iter_dataset(INLINE, allow_nones=True).skip(3)) == [
        None,
        4,
        None,
        6,
        None,
        8,
        None,
    ]


def test_skip_is_done_once() -> None:
    source = CountingSource(100)
    stream = MapDataset.source(source).to_iter_dataset(INLINE).filter(lambda x: x % 2 > 0).skip(40)
    iterator = iter(stream)
    assert next(iterator) == 81
    state = through_json(iterator.get_state())
    source.read.clear()
    again = iter(stream)
    again.set_state(state)
    assert list(again) == list(range(83, 100, 2))
    assert min(source.read) == 82


def test_what_fails_counts_as_skipped() -> None:
    for stream in (
        Kit(broken=(1, 4)).stream(9),
        Kit(broken=(1, 4)).stream(9).filter(lambda element: True),
    ):
        assert [int(element["id"]) for element in stream.skip(3).take(1)] == [3]
        ids: list[Any] = []
        iterator = iter(stream.skip(2))
        while True:
            try:
                ids.append(int(next(iterator)["id"]))
            except StopIteration:
                break
            except Exception as error:
                ids.append(str(error))
        assert ids == [2, 3, "record 4", 5, 6, 7, 8]


def test_a_state_of_another_skip_is_refused() -> None:
    stream = MapDataset.range(9).to_iter_dataset(INLINE)
    iterator = iter(stream.skip(3))
    next(iterator)
    state = {name: part for name, part in iterator.get_state().items() if name != "bushel"}
    with pytest.raises(ValueError, match=r"passed over 3 elements, and `skip\(4\)`"):
        iter(stream.skip(4)).set_state(state)


@tried
@given(lengths, st.integers(-3, 3))
def test_enumerate(length: int, start: int) -> None:
    stream, expected = thirds_dropped(length)
    assert_resumes(stream.enumerate(start), list(enumerate(expected, start)))


@tried
@given(lengths, st.integers(1, 3))
def test_repeat(length: int, epochs: int) -> None:
    stream, expected = thirds_dropped(length)
    assert_resumes(stream.repeat(epochs), expected * epochs)
    assert_resumes(stream.repeat(epochs).take(5), (expected * epochs)[:5])


@tried
@given(lengths, sizes, sizes)
def test_unbatch(length: int, size: int, again: int) -> None:
    stream, expected = thirds_dropped(length)
    rows = [np.int64(element) for element in expected]
    assert_resumes(stream.batch(size).unbatch(), rows)
    batches = list(stream.batch(again))
    assert_resumes(stream.batch(size).unbatch().batch(again), batches)


def test_unbatch_of_trees_makes_views() -> None:
    batches: list[Any] = []

    def keep(batch: Any) -> Any:
        batches.append(batch)
        return batch

    stream = MapDataset.source([{"x": np.full(3, i), "y": (i,)} for i in range(5)])
    rows = list(stream.to_iter_dataset(INLINE).batch(2).map(keep).unbatch())
    assert [row["x"].tolist() for row in rows] == [[i] * 3 for i in range(5)]
    assert [row["y"] for row in rows] == [(i,) for i in range(5)]
    assert all(np.shares_memory(row["x"], batches[i // 2]["x"]) for i, row in enumerate(rows))


@pytest.mark.parametrize(
    ("element", "text"),
    [
        ({"x": np.zeros(2), "y": 7}, r"element\['y'\] is a int that has none"),
        ({"x": np.zeros(2), "y": np.zeros(3)}, r"element\['y'\] has 3 and another one has 2"),
        ({}, "there is no array"),
    ],
)
def test_unbatch_needs_batches(element: Any, text: str) -> None:
    stream = MapDataset.source([element]).to_iter_dataset(INLINE).unbatch()
    with pytest.raises(BatchError, match=text):
        next(iter(stream))


@tried
@given(lengths, sizes, sizes, st.booleans())
@example(length=3, size=4, stride=1, drop=False)  # No more elements than neighbours share.
def test_windows(length: int, size: int, stride: int, drop: bool) -> None:
    stream, expected = thirds_dropped(length)
    made = stream.windows(size, stride, drop_remainder=drop)
    assert_resumes(made, windows_of(expected, size, stride, drop))


@tried
@given(sizes, sizes, st.booleans(), st.integers(0, 50))
def test_windows_do_not_depend_on_chunks(size: int, stride: int, drop: bool, seed: int) -> None:
    broken = (3, 11, 12)

    def make(kit: Kit) -> Any:
        return kit.stream(25).windows(size, stride, drop_remainder=drop)

    expected = pull_events(make(Kit(broken=broken)), [1] * 200)
    assert run_events(make(Kit(broken=broken))) == expected
    assert pull_events(make(Kit(broken=broken)), wants_from(seed, 6)) == expected


def test_windows_begin_anew_behind_what_fails() -> None:
    stream = Kit(broken=(4,)).stream(9).map(lambda element: element["id"]).windows(3)
    iterator = iter(stream)
    assert [next(iterator).tolist() for _ in range(2)] == [[0, 1, 2], [1, 2, 3]]
    with pytest.raises(Exception, match="record 4"):
        next(iterator)
    assert [window.tolist() for window in iterator] == [[5, 6, 7], [6, 7, 8]]


def test_windows_have_their_elements_for_themselves() -> None:
    stream = MapDataset.source(np.arange(6)).to_iter_dataset(INLINE).map_batches(lambda x: x * 2)
    made = []
    for window in stream.windows(3):
        made.append(window.tolist())
        window += 100
    assert made == [[0, 2, 4], [2, 4, 6], [4, 6, 8], [6, 8, 10]]


def test_windows_that_cannot_be_stacked() -> None:
    shapes = [1, 1, 1, 2, 1, 1, 1]
    stream = MapDataset.source([np.zeros(n) for n in shapes]).to_iter_dataset(INLINE).windows(2)
    expected = pull_events(stream, [1] * 20)
    assert [is_error(event) for event in expected] == [False, False, True, True, False, False]
    for seed in range(4):
        assert pull_events(stream, wants_from(seed, 7)) == expected
    with iter(stream) as iterator:
        assert events_of(iterator) == expected


def test_windows_resume_by_one_window() -> None:
    source = CountingSource(500)
    stream = MapDataset.source(source).to_iter_dataset(INLINE).windows(8, stride=3)
    iterator = iter(stream)
    for _ in range(100):
        next(iterator)
    state = iterator.get_state()
    source.read.clear()
    iterator.set_state(state)
    assert next(iterator).tolist() == list(range(300, 308))
    assert min(source.read) == 300


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda ds: ds.take(-1), PlanError, r"`take` takes a number of elements, and got -1"),
        (lambda ds: ds.skip(-2), PlanError, r"`skip` takes a number of elements, and got -2"),
        (lambda ds: ds.take(1.5), TypeError, "float"),
        (lambda ds: ds.enumerate("1"), TypeError, "str"),
        (lambda ds: ds.windows(0), PlanError, "positive, and are 0 and 1"),
        (lambda ds: ds.windows(2, 0), PlanError, "positive, and are 2 and 0"),
        (lambda ds: ds.windows(2**70, drop_remainder=False), PlanError, "has more than"),
        (lambda ds: ds.windows(2, 2**70), PlanError, "has more than"),
        (lambda ds: ds.windows(2, stride=None), TypeError, "NoneType"),
    ],
)
@pytest.mark.parametrize("random_access", [True, False], ids=["map", "iter"])
def test_arguments(call: Any, kind: type[Exception], text: str, random_access: bool) -> None:
    ds = MapDataset.range(9)
    with pytest.raises(kind, match=text):
        call(ds if random_access else ds.to_iter_dataset())


def test_arguments_of_streams() -> None:
    stream = MapDataset.range(9).to_iter_dataset()
    with pytest.raises(PlanError, match="num_epochs must be positive, but got 0"):
        stream.repeat(0)
    with pytest.raises(PlanError, match="the stream has no elements"):
        list(stream.take(0).repeat())


def test_the_same_with_workers() -> None:
    stream = (
        MapDataset.range(60)
        .to_iter_dataset(INLINE)
        .filter(lambda x: x % 3 > 0)
        .skip(3)
        .windows(4, stride=2)
        .unbatch()
        .enumerate()
        .take(50)
    )
    assert_same_events(run_events(with_workers(stream, 2)), run_events(stream))


def test_prints_as_written() -> None:
    stream = MapDataset.range(9).to_iter_dataset()
    made = stream.skip(2).enumerate(1).windows(3, 2, drop_remainder=False).unbatch().repeat(2)
    assert repr(made).endswith(
        "skip(2) -> enumerate(1) -> windows(3, stride=2, drop_remainder=False) -> unbatch() -> "
        "repeat(2))"
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_what_fails_behind_the_last_is_not_read(workers: int) -> None:
    def fail(x: int) -> int:
        if x == 3:
            raise ValueError(x)
        return x

    ds = MapDataset.range(10).map(fail).to_iter_dataset().take(3)
    if workers:
        ds = ds.mp_prefetch(MultiprocessingOptions(workers))
    assert list(ds) == [0, 1, 2]


def test_windows_with_gaps_begin_anew_after_a_failure() -> None:
    def fail(x: int) -> int:
        if x == 5:
            raise BatchError("five")
        return x

    windows = MapDataset.range(13).map(fail).to_iter_dataset(INLINE).windows(2, stride=4)
    found: list[Any] = []
    with iter(windows) as iterator:
        for _ in range(4):
            try:
                found.append(next(iterator).tolist())
            except BatchError:
                found.append("five")
        assert list(iterator) == []
    assert found == [[0, 1], "five", [6, 7], [10, 11]]
