"""`pack`: the rows of the named datasets, and what is done about long sequences."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel import IterDataset, MapDataset, ReadOptions
from bushel.errors import BatchError, PlanError
from bushel.experimental import (
    BestFitPackIterDataset,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
)
from tests.contract.events import pull_events
from tests.contract.test_schedules import walk
from tests.grain.oracle import Raised, assert_same, events
from tests.property.profile import tried
from tests.streams.compare import assert_resumes
from tests.streams.corpora import Corpus, corpora, packings

FITS = {"first_fit": FirstFitPackIterDataset, "best_fit": BestFitPackIterDataset}
every_fit = pytest.mark.parametrize("fit", FITS)


@every_fit
@tried
@given(packings())
def test_rows_are_those_of_the_named_dataset(fit: str, corpus: Corpus) -> None:
    told = {**corpus.arguments, "shuffle_bins_group_by_feature": None}
    packed = corpus.stream(bushel).pack(
        corpus.lengths,
        strategy=fit,
        bins=told["num_packing_bins"],
        seed=told["seed"] if told["shuffle_bins"] else None,
        meta_features=told["meta_features"],
        alignment=told.get("pack_alignment_struct"),
        padding=told.get("padding_struct"),
        max_sequences=told["max_sequences_per_bin"],
    )
    assert_same(list(FITS[fit](corpus.stream(bushel), **told)), list(packed))


@tried
@given(corpora(longest=2.5, scalars=False))
def test_end_to_end(corpus: Corpus) -> None:
    stream = corpus.stream(bushel)
    named = ConcatThenSplitIterDataset(stream, length_struct=corpus.lengths)
    # Features that have no length are left out.
    fluent = stream.map(lambda element: {**element, "other": 1}).pack(
        corpus.lengths, strategy="concat_then_split"
    )
    assert_same(list(named), list(fluent))


def _stream(elements: list[Any]) -> IterDataset[Any]:
    return MapDataset.source(elements).to_iter_dataset(ReadOptions(0, 0))


def _documents(sizes: list[tuple[int, int]]) -> list[Any]:
    return [
        {"x": np.arange(10 * at, 10 * at + one), "y": np.full(other, at), "at": at}
        for at, (one, other) in enumerate(sizes)
    ]


sizes = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20)
LENGTHS = {"x": 4, "y": 3}


def _fits(element: Any) -> bool:
    return all(len(element[name]) <= length for name, length in LENGTHS.items())


def _cut(element: Any) -> Any:
    return {**element, **{name: element[name][:length] for name, length in LENGTHS.items()}}


def _pieces(element: Any) -> list[Any]:
    made = []
    rest = element
    while not _fits(rest):
        made.append(_cut(rest))
        rest = {**rest, **{name: rest[name][length:] for name, length in LENGTHS.items()}}
    return [*made, rest]


@every_fit
@tried
@given(sizes, st.integers(0, 2**32 - 1))
def test_what_is_too_long(fit: str, drawn: list[tuple[int, int]], seed: int) -> None:
    documents = _documents(drawn)
    prepared = {
        "drop": [element for element in documents if _fits(element)],
        "truncate": [_cut(element) for element in documents],
        "split": [piece for element in documents for piece in _pieces(element)],
    }
    for too_long, elements in prepared.items():
        told: Any = {"strategy": fit, "bins": 2, "meta_features": ["at"]}
        ds = _stream(documents).pack(LENGTHS, too_long=too_long, **told)
        expected = list(_stream(elements).pack(LENGTHS, **told))
        assert_same(expected, list(ds))
        if seed % 3 == 0:
            assert_resumes(ds, expected)
            walk(ds, pull_events(ds, [1] * 2000), seed)


def test_what_is_too_long_is_an_error_and_no_more() -> None:
    happened = events(iter(_stream(_documents([(2, 2), (5, 1), (2, 1)])).pack(LENGTHS)))
    assert len(happened) == 2 and isinstance(happened[0], Raised)
    assert isinstance(happened[0].error, BatchError)
    assert "a sequence of 5 does not fit into a row" in str(happened[0].error)
    assert happened[1]["x"].tolist() == [0, 1, 20, 21]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "worst_fit"}, "must be one of first_fit, best_fit, concat_then_split"),
        ({"too_long": "cut"}, "too_long must be one of error, truncate, split, drop"),
        ({"strategy": "concat_then_split", "bins": 3}, "`bins` has no meaning with"),
        ({"strategy": "concat_then_split", "too_long": "drop"}, "`too_long` has no meaning"),
        ({"bos_token_id": 1}, "`bos_token_id` is for strategy='concat_then_split'"),
        ({"bins": 0}, "`num_packing_bins` must be positive"),
        ({"seed": -1}, "`seed` must not be negative"),
    ],
)
def test_refused(arguments: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        _stream([]).pack({"x": 4}, **arguments)


def test_sequences_of_unlike_lengths_after_like_ones() -> None:
    # As long as features are equally long they are packed by the first one alone.
    drawn = [(2, 2), (1, 1), (2, 2), (3, 1), (1, 3), (0, 2), (2, 0), (4, 4), (1, 1), (0, 4)]
    for fit, named in FITS.items():
        told = {"length_struct": {"x": 4, "y": 4}, "num_packing_bins": 3, "shuffle_bins": False}
        slow = [{**e, "x": list(e["x"])} for e in _documents(drawn)]
        one_by_one = _stream(slow).map(lambda e: {**e, "x": np.array(e["x"], int)})
        expected = list(named(one_by_one, **told))
        assert_same(
            expected, list(_stream(_documents(drawn)).pack({"x": 4, "y": 4}, bins=3, strategy=fit))
        )
