"""A program that has four devices: what it finds out about `device_put`, as JSON.

How many devices there are is settled when JAX starts, so it is a process of its own.
"""

import json
import os
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":  # Before JAX is imported, and not where tests are collected.
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bushel import MapDataset, MultiprocessingOptions
from bushel.experimental import device_put

ROWS = np.arange(64 * 4, dtype=np.float32).reshape(64, 4)


def _batches() -> MapDataset[Any]:
    source = {"x": ROWS, "y": np.arange(64, dtype=np.int32)}
    return MapDataset.source(source).seed(3).shuffle().batch(8)


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(2, 2), ("rows", "columns"))


def _placed(*axes: Any) -> NamedSharding:
    return NamedSharding(_mesh(), PartitionSpec(*axes))


def _check(ds: Any, place: Any) -> Any:
    """Values and shardings of all that is delivered, against what was to be."""
    got = list(device_put(ds, place))
    expected = list(_batches())
    assert len(got) == len(expected) == 8
    for arrays, batch in zip(got, expected, strict=True):
        for name, array in arrays.items():
            assert isinstance(array, jax.Array)
            assert array.dtype == batch[name].dtype
            assert (np.asarray(array) == batch[name]).all()
            for shard in array.addressable_shards:
                assert (np.asarray(shard.data) == batch[name][shard.index]).all()
    return [list(array.sharding.spec) for array in got[0].values()]


def one_sharding() -> Any:
    return _check(_batches(), _placed("rows"))


def a_tree_of_shardings() -> Any:
    return _check(_batches(), {"x": _placed("rows", "columns"), "y": _placed("rows")})


def a_device_that_is_not_the_first() -> Any:
    got = next(iter(device_put(_batches(), jax.devices()[2])))
    return [device.id for device in got["x"].devices()]


def a_device_and_a_sharding() -> Any:
    got = next(iter(device_put(_batches(), {"x": _placed("rows"), "y": jax.devices()[3]})))
    return [sorted(device.id for device in got[name].devices()) for name in ("x", "y")]


def workers_before() -> Any:
    ds = _batches().to_iter_dataset().mp_prefetch(MultiprocessingOptions(num_workers=1))
    return _check(ds, _placed("rows"))


def lanes() -> Any:
    ds = MapDataset.range(64).lanes(4).filter(lambda number: number % 16 < 8).batch(8)
    got = list(device_put(ds, _placed(("rows", "columns"))))
    return [
        [np.asarray(shard.data).tolist() for shard in batch.addressable_shards] for batch in got
    ]


def rows_that_do_not_fit() -> Any:
    iterator = iter(device_put(MapDataset.source(ROWS).batch(5), _placed("rows")))
    told = []
    for _ in range(2):
        try:
            next(iterator)
        except ValueError as error:
            told.append(error.__notes__)
    return told


PROGRAMS: list[Callable[[], Any]] = [
    one_sharding,
    a_tree_of_shardings,
    a_device_that_is_not_the_first,
    a_device_and_a_sharding,
    workers_before,
    lanes,
    rows_that_do_not_fit,
]

if __name__ == "__main__":
    # A line of its own: some versions of JAX say where they are, without one.
    print("\n" + json.dumps({run.__name__: run() for run in PROGRAMS}), flush=True)
