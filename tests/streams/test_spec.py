"""What elements look like, told without reading any."""

from collections.abc import Callable
from pathlib import Path
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


def test_one_record_tells_what_a_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "words.jsonl"
    path.write_text('{"text": "one", "ids": [1, 2]}\n{"text": "two", "ids": [3, 4]}\n')
    ds = bushel.MapDataset.source(bushel.open(str(path))).seed(1).shuffle()
    spec = bushel.experimental.get_element_spec(ds.to_iter_dataset(), read_one=True)
    assert spec["text"] == bushel.experimental.ShapeDtypeStruct((), np.dtype(str))
    with pytest.raises(NotImplementedError, match=r"read_one=True"):
        bushel.experimental.get_element_spec(ds)


def test_one_record_is_read_and_no_worker_is_started() -> None:
    read: list[int] = []

    def function(number: int) -> dict[str, Any]:
        read.append(number)
        return {"x": np.zeros(3, np.float32), "n": number, "name": b"abc"}

    ds = bushel.MapDataset.range(1000).map(function).batch(10).to_iter_dataset()
    ds = ds.mp_prefetch(bushel.MultiprocessingOptions(2))
    spec = bushel.experimental.get_element_spec(ds, read_one=True)
    struct = bushel.experimental.ShapeDtypeStruct
    assert spec == {
        "x": struct((None, 3), np.dtype(np.float32)),
        "n": struct((None,), np.dtype(np.int64)),
        "name": struct((None,), np.dtype(bytes)),
    }
    assert set(read) <= set(range(50)) and read


def test_nothing_to_tell_it_by() -> None:
    with pytest.raises(bushel.errors.EmptyDatasetError, match="no element after"):
        bushel.experimental.get_element_spec(
            bushel.MapDataset.range(3).filter(lambda x: x > 5).map(str), read_one=True
        )
