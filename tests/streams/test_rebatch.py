"""Batches of another size: those of Grain."""

from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel.batch.rebatch import _Rebatcher
from tests.contract.events import pull_events
from tests.contract.test_schedules import walk
from tests.grain.oracle import assert_same
from tests.property.profile import tried
from tests.streams.compare import assert_goes_on, assert_resumes
from tests.streams.corpora import Corpus

sizes = st.integers(1, 9)


@st.composite
def batches(draw: st.DrawFn) -> Corpus:
    made: list[Any] = []
    shape = draw(st.sampled_from(["array", "dict", "tuple"]))
    start = 0
    for _ in range(draw(st.integers(0, 9))):
        stop = start + draw(st.integers(1, 6))
        numbers = np.arange(start, stop).astype(draw(st.sampled_from(["i4", "f8"])))
        pair = (numbers, np.stack([numbers, numbers], axis=1).astype("S4"))
        made.append({"array": numbers, "dict": {"b": pair[0], "a": pair[1]}, "tuple": pair}[shape])
        start = stop
    return Corpus(made, {})


def _rebatched(lib: Any, corpus: Corpus, size: int, drop: bool) -> Any:
    make = lib.experimental.RebatchIterDataset
    return make(corpus.stream(lib), batch_size=size, drop_remainder=drop)


@tried
@given(batches(), sizes, st.booleans(), st.data())
def test_batches_are_those_of_grain(
    corpus: Corpus, size: int, drop: bool, data: st.DataObject
) -> None:
    expected = list(_rebatched(grain, corpus, size, drop))
    assert_same(expected, list(_rebatched(bushel, corpus, size, drop)))
    # From its last state Grain itself gives one more batch, of nothing.
    done = data.draw(st.integers(0, len(expected)))
    assert_goes_on(
        _rebatched(grain, corpus, size, drop), _rebatched(bushel, corpus, size, drop), done
    )


@tried
@given(batches(), sizes, st.booleans())
def test_goes_on_from_everywhere(corpus: Corpus, size: int, drop: bool) -> None:
    ds = _rebatched(bushel, corpus, size, drop)
    assert_resumes(ds, list(ds))


@tried
@given(batches(), sizes, st.booleans(), st.integers(0, 2**32 - 1))
def test_the_same_however_it_runs(corpus: Corpus, size: int, drop: bool, seed: int) -> None:
    ds = _rebatched(bushel, corpus, size, drop)
    walk(ds, pull_events(ds, [1] * 2000), seed)


@tried
@given(st.lists(st.integers(1, 6), min_size=1, max_size=60), sizes, st.booleans())
def test_states_are_those_of_batches_made_one_at_a_time(
    counts: list[int], size: int, drop: bool
) -> None:
    """Many are cut out of a chunk at once, wherever it begins and ends."""
    ends = np.cumsum([0, *counts]).tolist()
    made = [{"x": np.arange(*ends[at : at + 2])} for at in range(len(counts))]
    ds = _rebatched(bushel, Corpus(made, {}), size, drop)

    def seen() -> list[Any]:
        iterator = iter(ds)
        return [(batch["x"].tolist(), iterator.get_state()) for batch in iterator]

    together = seen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Rebatcher, "make_many", lambda *_: None)
        assert seen() == together


def test_keys_in_another_order() -> None:
    one, other = {"a": np.zeros(1), "b": np.ones(1)}, {"b": np.ones(2), "a": np.zeros(2)}
    (row,) = _rebatched(bushel, Corpus([one, other], {}), 3, False)
    assert {name: values.tolist() for name, values in row.items()} == {"a": [0] * 3, "b": [1] * 3}


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        ({"a": np.empty(0)}, "no elements"),
        ({"z": np.zeros(2)}, "one structure"),
        ({"a": 3}, "no len|has no"),
    ],
)
def test_a_batch_that_fits_not_fails_alone(odd: Any, text: str) -> None:
    good = [{"a": np.array([number])} for number in range(4)]
    iterator = iter(_rebatched(bushel, Corpus([*good[:2], odd, *good[2:]], {}), 4, False))
    with pytest.raises((ValueError, TypeError), match=text):
        next(iterator)
    assert [row["a"].tolist() for row in iterator] == [[0, 1, 2, 3]]
