"""Older operations and `load`, as in Grain: what they give, and what they refuse."""

from typing import Any

import grain
import grain.python
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from tests.grain.oracle import Raised, assert_same, examples, outcome
from tests.grain.test_loader import _both, _Keys, _whole


def test_random_map_behind_flat_map_is_refused_in_words() -> None:
    """In Grain its generator is None, which fails at the first draw."""

    class Twice(bushel.transforms.FlatMap):
        max_fan_out = 2

        def flat_map(self, element: int) -> list[int]:
            return [element, element]

    class Draw(bushel.transforms.RandomMap):
        def random_map(self, element: int, rng: np.random.Generator) -> float:
            return rng.random()

    sampler = bushel.samplers.IndexSampler(4, seed=1)
    with pytest.raises(ValueError, match="Draw cannot follow a FlatMap in a DataLoader"):
        bushel.DataLoader(data_source=range(4), sampler=sampler, operations=[Twice(), Draw()])


def test_an_older_operation_does_not_hide_what_a_function_raises() -> None:
    """Grain turns it into a ValueError that does not say what went wrong."""

    def fail(element: int) -> int:
        raise ZeroDivisionError("mine")

    for lib, error in ((grain, ValueError), (bushel, ZeroDivisionError)):
        operations = [lib.python.MapOperation(fail)]
        with pytest.raises(error):
            list(_whole(lib, range(4), _Keys(lib, [0]), operations=operations))


@pytest.mark.parametrize(
    "build_operation",
    [
        lambda p: p.MapOperation(lambda x: x + 1),
        lambda p: p.FilterOperation(lambda x: x > 5),
        lambda p: p.RandomMapOperation(lambda x, rng: (x, rng)),
        lambda p: p.BatchOperation(2),
        lambda p: p.BatchOperation(2, drop_remainder=True),
        lambda p: p.BatchOperation(3, batch_fn=list),
    ],
)
def test_older_operations_on_records(build_operation: Any) -> None:
    def run(lib: Any) -> Any:
        metadata = [lib.RecordMetadata(3, 4), lib.RecordMetadata(7, 9), lib.RecordMetadata(8)]
        records = [lib.Record(m, 5 + i) for i, m in enumerate(metadata)]
        made = build_operation(lib.python)(iter(records))
        return [(r.metadata.index, r.metadata.record_key, r.data) for r in made]

    _both(run)


@examples(20)
@given(st.data())
def test_load(data: st.DataObject) -> None:
    seed = data.draw(st.none() | st.integers(0, 2**32 - 1), label="seed")
    count = data.draw(st.integers(20, 40), label="count")
    shards = data.draw(st.integers(1, 3), label="shards")
    arguments: dict[str, Any] = {
        "num_epochs": data.draw(st.sampled_from([None, 1, 2]), label="num_epochs"),
        # Rarely: shuffling few records takes Grain milliseconds for each.
        "shuffle": seed is not None and data.draw(st.integers(0, 4), label="shuffle") == 4,
        "seed": seed,
        "batch_size": data.draw(st.sampled_from([None, 1, 3, 4]), label="batch_size"),
        "drop_remainder": data.draw(st.booleans(), label="drop_remainder"),
        "worker_count": 0,
    }
    shard = (data.draw(st.integers(0, shards - 1)), shards, data.draw(st.booleans()))
    mapped = data.draw(st.booleans(), label="mapped")

    def run(lib: Any) -> Any:
        class Pair(lib.transforms.Map):
            def map(self, element: int) -> tuple[int, float]:
                return element, element / 2

        loader = lib.load(
            range(count),
            shard_options=lib.sharding.ShardOptions(*shard),
            transformations=[Pair()] if mapped else (),
            read_options=lib.ReadOptions(0, 0),
            **arguments,
        )
        iterator = iter(loader)
        # The first epoch at least, whether or not there is an end.
        return [outcome(lambda: next(iterator)) for _ in range(50)]

    _both(run)


@pytest.mark.parametrize(
    "arguments",
    [
        {"shuffle": True},
        {"batch_size": 0},
        {"batch_size": -1},
        {"num_epochs": 0},
        {"seed": -1},
        {"worker_count": -1},
        {"transformations": 3},
        {"nonsense": 3},
    ],
    ids=str,
)
def test_load_refuses(arguments: dict[str, Any]) -> None:
    expected = outcome(lambda: grain.load(range(6), **arguments))
    assert isinstance(expected, Raised)
    assert_same(expected, outcome(lambda: bushel.load(range(6), **arguments)))


@pytest.mark.parametrize("source", [[], 3, None], ids=repr)
def test_load_refuses_sources(source: Any) -> None:
    expected = outcome(lambda: grain.load(source))
    assert isinstance(expected, Raised)
    assert_same(expected, outcome(lambda: bushel.load(source)))
