"""What may stand between `lanes` and `batch`, and what is refused."""

from typing import Any

import pytest

from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions, transforms
from bushel.errors import PlanError
from bushel.experimental import (
    DatasetOptions,
    ThreadPrefetchIterDataset,
    WithOptionsIterDataset,
    ZipIterDataset,
)
from bushel.sharding import ShardOptions


def _lanes(count: int, **how: Any) -> IterDataset[int]:
    return MapDataset.range(32).lanes(count, **how)


@pytest.mark.parametrize("size", [-4, 0, 1, 6, 31])
def test_batches_that_lanes_cannot_share(size: int) -> None:
    with pytest.raises(PlanError, match=rf"`batch\({size}\)`.* a multiple of 4"):
        _lanes(4).batch(size)
    if size > 0:
        with pytest.raises(PlanError, match="a multiple of 4"):
            _lanes(4).apply(transforms.Batch(size))


@pytest.mark.parametrize("hosts", [3, 8])
@pytest.mark.parametrize("filtered", [True, False])
def test_lanes_that_hosts_cannot_share(hosts: int, filtered: bool) -> None:
    ds = _lanes(4, shard_options=ShardOptions(0, hosts))
    ds = ds.filter(lambda _: True) if filtered else ds
    with pytest.raises(PlanError, match=f"4 lanes cannot be owned by {hosts} hosts evenly"):
        iter(ds.batch(4))
    with pytest.raises(PlanError, match="must be a multiple of every number of hosts"):
        iter(ds)


def test_workers_within_lanes() -> None:
    ds = _lanes(4).mp_prefetch(MultiprocessingOptions(num_workers=1)).filter(lambda _: True)
    with pytest.raises(PlanError, match="`mp_prefetch` stands between `lanes` and `batch`"):
        iter(ds.batch(4))


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_finite_data_that_is_looked_at_takes_agreement(remainder: str) -> None:
    shard = ShardOptions(1, 2)
    filtered = _lanes(4, shard_options=shard, remainder=remainder).filter(lambda _: True)
    with pytest.raises(PlanError, match=r"host 1 of 2.*Pass `agree=`.*repeat the data for ever"):
        iter(filtered.batch(4))
    # One host has nobody to ask, positions tell by themselves, and what is endless never ends.
    alone = _lanes(4, remainder=remainder).filter(lambda _: True).batch(4)
    plain = _lanes(4, shard_options=shard, remainder=remainder).batch(4)
    endless = MapDataset.range(3).repeat().lanes(4, shard_options=shard, remainder=remainder)
    for ds in (alone, plain, endless.filter(lambda _: True).batch(4)):
        next(iter(ds))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (_lanes(2), r"lanes\(4\), lanes\(2\)"),
        (_lanes(4, remainder="pad"), r"lanes\(4\), lanes\(4, remainder='pad'\)"),
        (MapDataset.range(9).to_iter_dataset(), r"lanes\(4\), no lanes"),
        (_lanes(4).batch(4), r"lanes\(4\), no lanes"),
        (_lanes(4, shard_options=ShardOptions(1, 2)), r"lanes\(4\) for host 1 of 2"),
    ],
)
def test_parts_that_are_dealt_differently(other: IterDataset[Any], says: str) -> None:
    mixed = IterDataset.mix([_lanes(4), other])
    zipped = ZipIterDataset([_lanes(4), other])
    for ds in (mixed, zipped):
        with pytest.raises(PlanError, match=f"the parts of `(mix|zip).*{says}"):
            ds.batch(4)
        with pytest.raises(PlanError, match=says):
            iter(ds)


@pytest.mark.parametrize("count", [0, -3])
def test_no_lanes(count: int) -> None:
    with pytest.raises(PlanError, match=f"a positive number of lanes, and got {count}"):
        _lanes(count)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"count": 1.5}, "integer"),
        ({"count": "4"}, "integer"),
        ({"count": 4, "shard_options": (0, 2)}, r"must be `ShardOptions\(index, count\)`"),
        ({"count": 4, "agree": 3}, "`agree` must be a function"),
        ({"count": 4, "read_options": 3}, "ReadOptions"),
    ],
)
def test_arguments_of_other_types(how: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        MapDataset.range(32).lanes(**how)


def test_remainders_are_dropped_or_padded() -> None:
    with pytest.raises(PlanError, match="must be 'drop' or 'pad', and is 'keep'"):
        _lanes(4, remainder="keep")


def test_steps_that_change_nothing_may_stand_anywhere() -> None:
    ds = _lanes(4, read_options=ReadOptions(0, 0)).seed(3)
    ds = WithOptionsIterDataset(ds, DatasetOptions(filter_warn_threshold_ratio=None))
    ds = ThreadPrefetchIterDataset(ds, prefetch_buffer_size=3)
    expected = [list(range(start, start + 4)) for start in range(0, 32, 4)]
    assert [batch.tolist() for batch in ds.batch(4)] == expected
    filtered = ThreadPrefetchIterDataset(ds.filter(lambda _: True), prefetch_buffer_size=2)
    assert [batch.tolist() for batch in filtered.batch(4)] == expected


def test_behind_the_batch_a_stream_is_like_any_other() -> None:
    ds = _lanes(4, shard_options=ShardOptions(1, 2)).map(lambda x: x + 100).batch(8)
    pairs = ds.map(lambda batch: batch * 2).batch(2)
    assert next(iter(pairs)).tolist() == [[204, 212, 206, 214], [220, 228, 222, 230]]
    numbered = ds.map_with_index(lambda i, batch: (i, batch.tolist()))
    assert next(iter(numbered)) == (0, [102, 106, 103, 107])


def test_the_lanes_show_in_the_text_of_a_pipeline() -> None:
    ds = _lanes(4, remainder="pad").filter(lambda _: True).batch(8)
    text = repr(ds)
    assert "lanes(4, remainder='pad')" in text and "gather(2 from each lane)" in text
