"""Packing: the rows of Grain, and nothing of a sequence is lost."""

from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel import MapDataset
from tests.contract.events import pull_events
from tests.contract.test_schedules import walk
from tests.grain.oracle import assert_same
from tests.property.profile import tried
from tests.streams.compare import assert_goes_on, assert_resumes
from tests.streams.corpora import Corpus, packings
from tests.streams.models import as_sequence, sequences_in

# Grain has mean of nothing for rows that are all zero.
pytestmark = pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")

FITS = {
    "first": ("FirstFitPackIterDataset", packings()),
    "best": ("BestFitPackIterDataset", packings(best_fit=True)),
}
every_fit = pytest.mark.parametrize("fit", FITS)


def _packed(lib: Any, fit: str, corpus: Corpus, **more: Any) -> Any:
    make = getattr(lib.experimental, FITS[fit][0])
    return make(corpus.stream(lib), **{**corpus.arguments, **more})


@every_fit
@tried
@given(st.data())
def test_rows_are_those_of_grain(fit: str, data: st.DataObject) -> None:
    corpus = data.draw(FITS[fit][1])
    expected = list(_packed(grain, fit, corpus))
    assert_same(expected, list(_packed(bushel, fit, corpus)))
    done = data.draw(st.integers(0, len(expected)))
    assert_goes_on(_packed(grain, fit, corpus), _packed(bushel, fit, corpus), done)


@every_fit
@tried
@given(st.data())
def test_goes_on_from_everywhere(fit: str, data: st.DataObject) -> None:
    corpus = data.draw(FITS[fit][1])
    ds = _packed(bushel, fit, corpus)
    assert_resumes(ds, list(ds))


@every_fit
@tried
@given(st.data(), st.integers(0, 2**32 - 1))
def test_the_same_however_it_runs(fit: str, data: st.DataObject, seed: int) -> None:
    corpus = data.draw(FITS[fit][1])
    stream = corpus.stream(bushel).filter(lambda element: element["m"] != 1)
    ds = getattr(bushel.experimental, FITS[fit][0])(stream, **corpus.arguments)
    walk(ds, pull_events(ds, [1] * 2000), seed)


@every_fit
@tried
@given(st.data())
def test_every_sequence_is_in_one_row(fit: str, data: st.DataObject) -> None:
    corpus = data.draw(FITS[fit][1])
    plain = {"padding_struct": None, "shuffle_bins_group_by_feature": None}
    rows = list(_packed(bushel, fit, corpus, meta_features=["q"], **plain))
    # Loose features tell which elements a row has, in order.
    numbers = [int(name[1:]) for row in rows for name in row["q"]]
    assert sorted(numbers) == list(range(len(corpus.elements)))
    for row in rows:
        elements = [corpus.elements[int(name[1:])] for name in row["q"]]
        assert len(elements) <= (corpus.arguments["max_sequences_per_bin"] or len(elements))
        for name, length in corpus.lengths.items():
            assert len(row[name]) == length
            found = dict(sequences_in(row, name))
            for place, element in enumerate(elements, start=1):
                expected = as_sequence(element[name])
                cells = found.pop(place, expected[:0])
                assert cells.tolist() == expected.tolist()
            assert not found
            assert not row[name][row[f"{name}_segment_ids"] == 0].astype(bool).any()


@every_fit
@tried
@given(st.data())
def test_sequences_begin_where_they_are_aligned(fit: str, data: st.DataObject) -> None:
    corpus = data.draw(FITS[fit][1])
    steps = {name: data.draw(st.integers(1, 4)) for name in corpus.lengths}
    more = {"shuffle_bins_group_by_feature": None, "pack_alignment_struct": steps}
    for row in _packed(bushel, fit, corpus, meta_features=(), **more):
        for name, step in steps.items():
            begins = np.flatnonzero(
                (row[f"{name}_positions"] == 0) & (row[f"{name}_segment_ids"] > 0)
            )
            assert not (begins % step).any()


NEST = {"u": 5, "v": {"w": 4}}


@every_fit
def test_nested_meta_features(fit: str) -> None:
    elements = [
        {"x": np.arange(i % 4), "nest": {"u": np.arange(i % 3), "v": {"w": i}}} for i in range(20)
    ]
    arguments = {
        "length_struct": {"x": 6, "nest": NEST},
        "num_packing_bins": 3,
        "meta_features": ["nest"],
        "padding_struct": {"x": None, "nest": {"u": 9, "v": {"w": None}}},
    }
    corpus = Corpus(elements, {}, arguments)
    assert_same(list(_packed(grain, fit, corpus)), list(_packed(bushel, fit, corpus)))


@every_fit
@pytest.mark.parametrize("most", [None, 2])
def test_only_loose_features(fit: str, most: int | None) -> None:
    arguments = {
        "length_struct": {},
        "num_packing_bins": 3,
        "meta_features": ["m"],
        "max_sequences_per_bin": most,
        "shuffle_bins": False,
    }
    corpus = Corpus([{"m": i} for i in range(8)], {}, arguments)
    rows = [row["m"] for row in _packed(bushel, fit, corpus)]
    expected = [[0, 1], [2, 3], [4, 5], [6, 7]] if most else [list(range(8))]
    assert rows == expected


@every_fit
def test_dtypes_are_those_of_the_first_of_a_group(fit: str) -> None:
    kinds = ["i4", "f8", "i4", "i8", "f4", "u1"]
    elements = [{"x": np.full(3, 1.5 + i).astype(kind)} for i, kind in enumerate(kinds)]
    arguments = {"length_struct": {"x": 6}, "num_packing_bins": 1}
    corpus = Corpus(elements, {}, arguments)
    assert_same(list(_packed(grain, fit, corpus)), list(_packed(bushel, fit, corpus)))


@every_fit
def test_a_random_access_dataset_as_parent(fit: str) -> None:
    ds = MapDataset.range(9).map(lambda i: {"x": np.full(i % 3, i)})
    make = getattr(bushel.experimental, FITS[fit][0])
    rows = list(make(ds, length_struct={"x": 4}, num_packing_bins=2))
    assert sum((row["x_segment_ids"] > 0).sum() for row in rows) == 9
