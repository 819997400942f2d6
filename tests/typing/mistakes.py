"""Read by mypy only: the comments say what it must complain about."""

import bushel as grain


def wrong_arguments(ds: grain.MapDataset[int]) -> None:
    ds.shuffle("seed")  # error: arg-type
    ds.batch("two")  # error: arg-type
    ds.map(3)  # error: arg-type
    ds.repeat(2, False)  # error: call-arg
    grain.samplers.IndexSampler("ten")  # error: arg-type
    grain.samplers.IndexSampler(10, shard_options=(0, 2))  # error: arg-type
    grain.sharding.ShardOptions(0)  # error: call-arg
    grain.DataLoader([1], grain.samplers.IndexSampler(1))  # error: call-arg
    grain.load([1], batchsize=2)  # error: call-arg
    grain.open("a.parquet").schema  # error: attr-defined
    grain.ReadOptions(threads=2)  # error: call-arg


def wrong_elements(ds: grain.MapDataset[int]) -> None:
    ds.map(lambda element: element.upper())  # error: attr-defined
    ds.map(str).map(lambda element: element + 1)  # error: operator
    for element in ds.to_iter_dataset():
        element.upper()  # error: attr-defined
    state: bytes = iter(ds).get_state()  # error: assignment
    print(state)


class NoMap(grain.transforms.Map):
    pass


def unfinished() -> None:
    NoMap()  # error: abstract
