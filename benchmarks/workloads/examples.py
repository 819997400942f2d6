"""Serialised `tf.train.Example`s to arrays: bushel's own parser against protobuf's."""

from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.throughput import Throughput
from benchmarks.workload import Form, Goal, Workload

BATCH_SIZE = 64
DISTINCT = 16 * BATCH_SIZE
RECORDS = 16 * DISTINCT
TOKENS = 2048

Serialise = Callable[[int], list[bytes]]


@cache
def rows_of_numbers(n: int) -> list[bytes]:
    """A label, a position and sixteen floats: messages of a hundred bytes."""
    rng = np.random.default_rng(n)
    return serialised(
        {"label": rng.integers(0, 10, 1), "id": np.array([number]), "x": rng.random(16, np.float32)}
        for number in range(min(n, DISTINCT))
    )


@cache
def rows_of_tokens(n: int) -> list[bytes]:
    """A document of tokens, most of which take three bytes."""
    rng = np.random.default_rng(n)
    return serialised({"tokens": rng.integers(0, 50_000, TOKENS)} for _ in range(min(n, DISTINCT)))


def serialised(rows: Iterator[dict[str, Any]]) -> list[bytes]:
    from bushel.sources import encode_example

    return [encode_example(row) for row in rows]


def parsed(records: list[bytes], n: int, parse: Callable[[bytes], dict[str, Any]]) -> Iterator[Any]:
    for start in range(0, n, BATCH_SIZE):
        place = start % len(records)
        rows = [parse(record) for record in records[place : place + BATCH_SIZE]]
        yield {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def parse_by_protobuf() -> Callable[[bytes], dict[str, Any]]:
    from tensorflow.core.example import example_pb2

    def parse(record: bytes) -> dict[str, Any]:
        features = example_pb2.Example.FromString(record).features.feature
        return {name: values_of(feature) for name, feature in features.items()}

    def values_of(feature: Any) -> Any:
        if feature.HasField("int64_list"):
            return np.array(feature.int64_list.value, np.int64)
        return np.array(feature.float_list.value, np.float32)

    return parse


def workload(name: str, title: str, serialise: Serialise, goal: float) -> Workload:
    def by_hand(n: int) -> Iterator[Any]:
        return parsed(serialise(n), n, parse_by_protobuf())

    def parse_example(lib: ModuleType, n: int) -> Iterator[Any]:
        return parsed(serialise(n), n, lib.sources.parse_example)

    return Workload(
        name=name,
        title=title,
        gauge=Throughput(RECORDS, BATCH_SIZE),
        hand=by_hand,
        forms=(Form("parse_example", parse_example, Goal(goal, "hand"), grain_agrees=None),),
    )


NUMBERS = workload("example_numbers", "Examples, label and 16 floats", rows_of_numbers, 1.0)
WITH_TOKENS = workload("example_tokens", "Examples, 2,048 tokens", rows_of_tokens, 0.9)
