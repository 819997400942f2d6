"""What elements look like, told without reading any."""

from collections.abc import Callable
from typing import Any

import grain
import numpy as np
import pytest

import bushel

STREAMS: dict[str, Callable[[Any, Any], Any]] = {
    "repeat": lambda lib, ds: lib.experimental.RepeatIterDataset(ds, 2),
    "limit": lambda lib, ds: lib.experimental.LimitIterDataset(ds, 2),
    "cache": lambda lib, ds: lib.experimental.CacheIterDataset(ds),
    "interleave": lambda lib, ds: lib.experimental.InterleaveIterDataset(
        [ds, ds], cycle_length=2
    ).batch(3, drop_remainder=True),
    "multithread_prefetch": lambda lib, ds: lib.experimental.multithread_prefetch(ds, 2, 2),
    "rebatch": lambda lib, ds: lib.experimental.RebatchIterDataset(
        ds.batch(2), 3, drop_remainder=True
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_as_grain_says(name: str) -> None:
    expected, actual = (
        lib.experimental.get_element_spec(
            STREAMS[name](lib, lib.MapDataset.range(9).to_iter_dataset())
        )
        for lib in (grain, bushel)
    )
    assert (actual.shape, np.dtype(actual.dtype)) == (expected.shape, np.dtype(expected.dtype))


def test_the_last_batch_may_be_shorter_and_the_others_are_told() -> None:
    batches = bushel.MapDataset.range(9).to_iter_dataset().batch(2)
    spec = bushel.experimental.get_element_spec(bushel.experimental.RebatchIterDataset(batches, 3))
    assert spec.shape == (3,)


def test_not_known_of_rows() -> None:
    ds = bushel.MapDataset.range(9).to_iter_dataset()
    packed = bushel.experimental.ConcatThenSplitIterDataset(ds, length_struct={"x": 3})
    with pytest.raises(NotImplementedError, match="concat_then_split"):
        bushel.experimental.get_element_spec(packed)
