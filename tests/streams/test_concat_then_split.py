"""Sequences laid end to end and cut: the rows of Grain, where Grain loses none."""

from typing import Any

import grain
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from tests.contract.events import pull_events
from tests.contract.test_schedules import walk
from tests.grain.oracle import assert_same
from tests.property.profile import tried
from tests.streams.compare import assert_goes_on, assert_resumes
from tests.streams.corpora import NUMBERS, Corpus, corpora
from tests.streams.models import as_sequence, split

BOS = 200


def _with_metas(draw: st.DrawFn, corpus: Corpus, metas: list[str], bos: list[str]) -> Corpus:
    for element in corpus.elements:
        for name in metas:
            element[name] = as_sequence(element[name])[: corpus.lengths[name]]
    return Corpus(
        corpus.elements,
        corpus.lengths,
        {"metas": metas, "splits_whole_rows": draw(st.booleans()), "bos_features": bos},
    )


@st.composite
def any_corpora(draw: st.DrawFn) -> Corpus:
    corpus = draw(corpora(kinds=NUMBERS, longest=3, scalars=False))
    metas = [name for name in corpus.lengths if draw(st.integers(0, 3)) == 0]
    sequences = [name for name in corpus.lengths if name not in metas]
    bos = [name for name in sequences if draw(st.booleans())]
    return _with_metas(draw, corpus, metas, bos)


@st.composite
def one_sequence(draw: st.DrawFn) -> Corpus:
    """Where Grain makes no mistakes: one feature is split, and no piece is empty with BOS."""
    with_bos = draw(st.booleans())
    kinds = NUMBERS if with_bos else (*NUMBERS, "U3", "?")
    corpus = draw(corpora(kinds=kinds, longest=3, least=int(with_bos), scalars=not with_bos))
    first, *metas = corpus.lengths
    return _with_metas(draw, corpus, metas, [first] if with_bos else [])


def _split(lib: Any, corpus: Corpus) -> Any:
    how, more = corpus.arguments, {}
    if how["bos_features"]:
        more = {
            "bos_handling": lib.experimental.BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS,
            "bos_features": how["bos_features"],
            "bos_token_id": BOS,
        }
    return lib.experimental.ConcatThenSplitIterDataset(
        corpus.stream(lib),
        length_struct=corpus.lengths,
        meta_features=how["metas"],
        split_full_length_features=how["splits_whole_rows"],
        **more,
    )


@tried
@given(one_sequence(), st.data())
def test_rows_are_those_of_grain(corpus: Corpus, data: st.DataObject) -> None:
    expected = list(_split(grain, corpus))
    assert_same(expected, list(_split(bushel, corpus)))
    done = data.draw(st.integers(0, len(expected)))
    assert_goes_on(_split(grain, corpus), _split(bushel, corpus), done)


@tried
@given(any_corpora())
def test_goes_on_from_everywhere(corpus: Corpus) -> None:
    expected = split(corpus.elements, corpus.lengths, **corpus.arguments, bos=BOS)
    assert_resumes(_split(bushel, corpus), expected)


@tried
@given(any_corpora(), st.integers(0, 2**32 - 1))
def test_the_same_however_it_runs(corpus: Corpus, seed: int) -> None:
    ds = _split(bushel, corpus)
    walk(ds, pull_events(ds, [1] * 2000), seed)


@tried
@given(any_corpora())
def test_no_token_is_lost(corpus: Corpus) -> None:
    corpus.arguments["bos_features"] = []
    corpus.arguments["splits_whole_rows"] = True
    rows = list(_split(bushel, corpus))
    for name in set(corpus.lengths) - set(corpus.arguments["metas"]):
        tokens = [token for e in corpus.elements for token in as_sequence(e[name]).tolist()]
        cells = [
            token for row in rows for token in row[name][row[f"{name}_segment_ids"] > 0].tolist()
        ]
        assert cells == tokens


def test_rows_as_keys_of_the_struct() -> None:
    """Keys come as `length_struct` has them, with what tells sequences apart after each."""
    corpus = Corpus(
        [{"b": [1, 2, 3], "a": [True]}] * 2,
        {"b": 4, "a": 2},
        {"metas": ["a"], "splits_whole_rows": True, "bos_features": []},
    )
    for row in _split(bushel, corpus):
        assert list(row) == ["b", "b_segment_ids", "b_positions", "a"]
        assert row["a"].dtype == bool


@pytest.mark.parametrize("element", [{"x": [1]}, {"x": [1], "y": [1], "z": [1]}, None, [1]])
def test_elements_of_other_features(element: Any) -> None:
    whole = {"x": [1, 2], "y": [3]}
    corpus = Corpus([whole, element, whole], {"x": 4, "y": 4})
    if element is None:
        corpus = Corpus([whole, 7, whole], {"x": 4, "y": 4})  # type: ignore[list-item]
    ds = bushel.experimental.ConcatThenSplitIterDataset(
        corpus.stream(bushel), length_struct=corpus.lengths
    )
    iterator = iter(ds)
    with pytest.raises(ValueError, match="exactly the features"):
        next(iterator)
    assert [row["x"].tolist() for row in iterator] == [[1, 2, 1, 2]]
