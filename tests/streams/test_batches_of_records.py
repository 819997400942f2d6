"""`batch_and_pad` and `PackAndBatchOperation`: what Grain's make."""

from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel.experimental import PackAndBatchOperation, batch_and_pad
from tests.grain.oracle import Raised, assert_same, outcome
from tests.property.profile import tried
from tests.streams.corpora import NUMBERS, Corpus, corpora

VALUES: dict[str, list[Any]] = {
    "numbers": [1, 2],
    "floats": [1.0, 2.5],
    "arrays": [np.arange(3, dtype="i4"), np.ones(3, dtype="i4")],
    "trees": [{"a": 1, "b": (True, None)}, {"a": 2, "b": (False, None)}],
    "strings": ["ab", "c"],
    "bytes": [b"ab", b"c"],
    "one": [np.float32(3)],
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("pad", [0, -1, 1.5, "PAD", None])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_batch_and_pad(values: list[Any], pad: Any, size: int) -> None:
    more = {} if pad is None else {"pad_value": pad}
    expected = outcome(lambda: grain.experimental.batch_and_pad(values, batch_size=size, **more))
    actual = outcome(lambda: batch_and_pad(values, batch_size=size, **more))
    if isinstance(expected, Raised) and len(values) == size:
        # Nothing is filled up, so it does not matter what with.
        assert_same(batch_and_pad(values, batch_size=size), actual)
    else:
        assert_same(expected, actual)


def test_batch_and_pad_of_several_kinds() -> None:
    """The padding is as exact as the batch; Grain's as exact as its first element."""
    batch = batch_and_pad([1, 2.5], batch_size=3, pad_value=1.5)
    assert batch.tolist() == [1.0, 2.5, 1.5]


def test_batch_and_pad_nothing() -> None:
    with pytest.raises(ValueError, match="no elements"):
        batch_and_pad([], batch_size=3)


def _packed(lib: Any, corpus: Corpus, size: int, most: int | None) -> list[Any]:
    operation = lib.experimental.PackAndBatchOperation(
        length_struct=corpus.lengths, batch_size=size, max_sequences_per_bin=most
    )
    records = [
        lib.Record(lib.RecordMetadata(index=index, record_key=index), element)
        for index, element in enumerate(corpus.elements)
    ]
    made = list(operation(iter(records)))
    return [(record.metadata.index, record.metadata.record_key, record.data) for record in made]


@tried
@given(
    corpora(kinds=NUMBERS, scalars=False).filter(lambda corpus: corpus.elements),
    st.integers(1, 4),
    st.sampled_from([None, 1, 2]),
)
def test_pack_and_batch(corpus: Corpus, size: int, most: int | None) -> None:
    assert_same(_packed(grain, corpus, size, most), _packed(bushel, corpus, size, most))


def test_pack_and_batch_of_nothing() -> None:
    assert list(PackAndBatchOperation(length_struct={"x": 3}, batch_size=2)(iter([]))) == []


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"max_sequences_per_bin": 0}])
def test_pack_and_batch_refuses(wrong: dict[str, int]) -> None:
    arguments: dict[str, Any] = {"length_struct": {"x": 3}, "batch_size": 2, **wrong}
    with pytest.raises(ValueError, match="must be positive"):
        PackAndBatchOperation(**arguments)
