"""Random loaders, described once and built in either library.

A `Loader` says what source, what sampler, which shard and which operations; its repr is what
hypothesis shows of a failing example. Records, functions and steps are those of `programs`.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.grain.functions import (
    BATCH_FUNCTIONS,
    FILTERS,
    FLAT_MAPS,
    MAPS,
    RANDOM_MAPS,
    RECORDS,
)
from tests.grain.programs import Step


@dataclass(frozen=True)
class Loader:
    """One program: what a DataLoader is made of."""

    source: Step
    sampler: Step
    shard: Step
    operations: tuple[Step, ...]

    def uses(self, *ops: str) -> bool:
        """Whether any of these operations is part of it."""
        return any(step.op in ops for step in self.operations)

    def vias(self) -> set[str]:
        """How the operations are spelt."""
        return {dict(step.args).get("via", step.op) for step in self.operations}


class Rows:
    """A source with nothing but rows: no columns, no blocks."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: int) -> Any:
        return self._rows[key]

    def __repr__(self) -> str:
        return f"Rows({len(self._rows)})"


class Unsized:
    """A source that does not know its length: keys arrive as the sampler gave them."""

    def __getitem__(self, key: int) -> Any:
        return ("unsized", key)

    def __repr__(self) -> str:
        return "Unsized()"


def _source(lib: Any, step: Step) -> Any:
    if step.op == "range":
        return lib.sources.RangeDataSource(step["start"], step["stop"], step["step"])
    if step.op == "unsized":
        return Unsized()
    rows = [RECORDS[step["kind"]](i) for i in range(step["count"])]
    return {
        "list": list,
        "tuple": tuple,
        "rows": Rows,
        "dict": lambda rows: dict(enumerate(rows)),
    }[step.op](rows)


def _shard(lib: Any, step: Step) -> Any:
    if step.op == "none":
        return lib.sharding.NoSharding()
    return lib.sharding.ShardOptions(step["index"], step["count"], step["drop"])


def _metadata(lib: Any, step: Step, index: int) -> Any:
    """What a sampler of a user's own says of a step."""
    key = step["keys"][index % len(step["keys"])]
    rng: Any = None
    if step["rng"] == "philox":
        rng = np.random.Generator(np.random.Philox(key=index + 7))
    elif step["rng"] == "pcg":
        rng = np.random.default_rng(index + 7)
    return lib.RecordMetadata(index=step["first"] + index, record_key=key, rng=rng)


def _own_sampler(lib: Any, step: Step) -> Any:
    class Endless:
        def __getitem__(self, index: int) -> Any:
            if not 0 <= index < step["steps"]:
                raise IndexError(f"no step {index}")
            return _metadata(lib, step, index)

        def __repr__(self) -> str:
            return f"Own({step!r})"

    class Sized(Endless):
        def __len__(self) -> int:
            return int(step["steps"])

    class Sharded(Sized):
        _shard_options = lib.sharding.ShardOptions(0, 2)

    if step["form"] == "list":
        return [_metadata(lib, step, index) for index in range(step["steps"])]
    return {"endless": Endless, "sized": Sized, "sharded": Sharded}[step["form"]]()


def _sampler(lib: Any, program: Loader) -> Any:
    step = program.sampler
    if step.op == "own":
        return _own_sampler(lib, step)
    options = _shard(lib, program.shard)
    if step.op == "sequential":
        return lib.samplers.SequentialSampler(step["records"], options, step["seed"])
    return lib.samplers.IndexSampler(
        num_records=step["records"],
        shard_options=options,
        shuffle=step["shuffle"],
        num_epochs=step["epochs"],
        seed=step["seed"],
    )


# Operations of a user's own: from an iterator of Records to another.


def _see(lib: Any, records: Iterator[Any]) -> Iterator[Any]:
    for record in records:
        metadata = record.metadata
        seen = (metadata.index, metadata.record_key, metadata.rng is not None, record.data)
        yield lib.Record(metadata, seen)


def _draw(lib: Any, records: Iterator[Any]) -> Iterator[Any]:
    for record in records:
        rng = record.metadata.rng
        drawn = None if rng is None else rng.integers(0, 2**32, dtype=np.uint32)
        yield lib.Record(record.metadata, (drawn, record.data))


def _twice(lib: Any, records: Iterator[Any]) -> Iterator[Any]:
    for record in records:
        yield record
        yield record


def _pairs(lib: Any, records: Iterator[Any]) -> Iterator[Any]:
    for first in records:
        second = next(records, None)
        if second is None:
            yield first
        else:
            yield lib.Record(second.metadata, (first.data, second.data))


def _behind(lib: Any, records: Iterator[Any]) -> Iterator[Any]:
    """Holds one Record back."""
    held = None
    for record in records:
        if held is not None:
            yield held
        held = record
    if held is not None:
        yield held


OWN = {
    "same": lambda lib, records: records,
    "see": _see,
    "draw": _draw,
    "twice": _twice,
    "pairs": _pairs,
    "behind": _behind,
    "first": lambda lib, records: itertools.islice(records, 3),
}
# These keep nothing from one Record to the next, so that a state says all about them.
MEMORYLESS = ("same", "see", "draw")


def _object(base: Any, method: str, function: Any) -> Any:
    fields = {method: staticmethod(function), "max_fan_out": 3}
    return type(f"A{base.__name__}", (base,), fields)()


def operation(lib: Any, step: Step) -> Any:
    """The object that stands for a step in a loader's `operations`."""
    transforms, legacy, via = lib.transforms, lib.python, dict(step.args).get("via")
    if step.op == "own":
        function = OWN[step["f"]]
        return lambda records: function(lib, records)
    if step.op == "map":
        function = MAPS[step["f"]]
        if via == "legacy":
            return legacy.MapOperation(function)
        return _object(transforms.Map, "map", function)
    if step.op == "filter":
        function = FILTERS[step["f"]]
        if via == "legacy":
            return legacy.FilterOperation(function)
        return _object(transforms.Filter, "filter", function)
    if step.op == "random_map":
        function = RANDOM_MAPS[step["f"]]
        if via == "legacy":
            return legacy.RandomMapOperation(function)
        if via == "tf":
            return _object(transforms.TfRandomMap, "np_random_map", function)
        return _object(transforms.RandomMap, "random_map", function)
    if step.op == "flat_map":
        return _object(lib.experimental.FlatMapTransform, "flat_map", FLAT_MAPS[step["f"]])
    assert step.op == "batch", step
    batch = legacy.BatchOperation if via == "legacy" else transforms.Batch
    return batch(step["size"], step["drop"], BATCH_FUNCTIONS[step["f"]])


def build(lib: Any, program: Loader, read_options: tuple[int, int] | None = (0, 0)) -> Any:
    """Makes the loader that a program describes."""
    given = {} if read_options is None else {"read_options": lib.ReadOptions(*read_options)}
    if not (program.sampler.op == "own" and program.sampler["form"] == "sharded"):
        given["shard_options"] = _shard(lib, program.shard)
    return lib.DataLoader(
        data_source=_source(lib, program.source),
        sampler=_sampler(lib, program),
        operations=[operation(lib, step) for step in program.operations],
        **given,
    )


# Strategies.

_seeds = st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 1))


def _step(op: str, **args: Any) -> Step:
    return Step(op, (), tuple(args.items()))


@st.composite
def _sources(draw: st.DrawFn) -> Step:
    kind = draw(st.sampled_from(["range", "list", "list", "tuple", "rows", "dict"]))
    count = draw(st.integers(1, 20))
    if kind == "range":
        stride = draw(st.sampled_from([1, 1, 2, -3]))
        start = draw(st.integers(-5, 5))
        return _step("range", start=start, stop=start + stride * count, step=stride)
    # A tuple of arrays is columns to bushel, where it is records to Grain.
    columns = ("array", "point_array", "ragged") if kind == "tuple" else ()
    records = [name for name in RECORDS if name not in columns]
    return _step(kind, kind=draw(st.sampled_from(records)), count=count)


@st.composite
def shards(draw: st.DrawFn) -> Step:
    """Mostly the whole."""
    count = draw(st.sampled_from([1, 1, 2, 3]))
    if count == 1 and draw(st.booleans()):
        return _step("none")
    index = draw(st.integers(0, count - 1))
    return _step("shard", index=index, count=count, drop=draw(st.booleans()))


@st.composite
def _own_samplers(draw: st.DrawFn) -> Step:
    keys = draw(st.lists(st.integers(-20, 40), min_size=1, max_size=8))
    return _step(
        "own",
        form=draw(st.sampled_from(["endless", "sized", "sharded", "list"])),
        steps=draw(st.integers(0, 20)),
        keys=tuple(keys),
        rng=draw(st.sampled_from([None, "philox", "pcg"])),
        first=draw(st.sampled_from([0, 0, 100])),
    )


@st.composite
def _samplers(draw: st.DrawFn, endless: bool) -> Step:
    # As many records as the source has, or fewer, or more: keys wrap around.
    records, seed = draw(st.integers(1, 24)), draw(st.sampled_from([None, 3, 3]) | _seeds)
    kind = draw(st.sampled_from(["index", "index", "sequential", "own"]))
    if kind == "own" and not endless:
        return draw(_own_samplers())
    if kind == "sequential" and not endless:
        return _step("sequential", records=records, seed=seed)
    # Grain's shuffle of very few records takes it milliseconds for each.
    shuffle = seed is not None and records > 6 and draw(st.integers(0, 2)) == 0
    epochs = None if endless else draw(st.integers(1, 3))
    return _step("index", records=records, shuffle=shuffle, epochs=epochs, seed=seed)


def _names(functions: dict[str, Any], via: str) -> st.SearchStrategy[str]:
    # Grain's older operations turn whatever a function raises into a ValueError.
    return st.sampled_from([name for name in functions if via == "object" or name != "boom"])


@st.composite
def _operations(draw: st.DrawFn, seeded: bool, kinds: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    for _ in range(draw(st.integers(0, 4))):
        op = draw(st.sampled_from(kinds.split()))
        expanded = any(step.op == "flat_map" for step in steps)
        if op == "random_map" and expanded:
            op = "map"  # Refused; see test_random_after_flat_map.
        via = draw(st.sampled_from(["object", "object", "legacy"]))
        if op == "map":
            steps.append(_step("map", f=draw(_names(MAPS, via)), via=via))
        elif op == "filter":
            steps.append(_step("filter", f=draw(_names(FILTERS, via)), via=via))
        elif op == "random_map":
            names = sorted(RANDOM_MAPS) if seeded else ["unused"]
            via = draw(st.sampled_from([via, "tf"]))
            steps.append(_step("random_map", f=draw(st.sampled_from(names)), via=via))
        elif op == "flat_map":
            steps.append(_step("flat_map", f=draw(st.sampled_from(sorted(FLAT_MAPS)))))
        elif op == "own":
            steps.append(_step("own", f=draw(st.sampled_from(sorted(OWN)))))
        else:
            function = draw(st.sampled_from([None, None, "list", "summary"]))
            size, drop = draw(st.integers(1, 5)), draw(st.booleans())
            steps.append(_step("batch", size=size, drop=drop, f=function, via=via))
    return tuple(steps)


_ALL = "map map random_map random_map filter flat_map batch batch own"


@st.composite
def loaders(draw: st.DrawFn, kinds: str = _ALL, endless: bool = False) -> Loader:
    """Loaders with these kinds of operations; `endless` ones have no last epoch."""
    sampler = draw(_samplers(endless))
    seeded = dict(sampler.args).get("seed", dict(sampler.args).get("rng")) is not None
    shard = draw(shards())
    if sampler.op == "own" and sampler["form"] == "sharded":
        shard = _step("none")
    program = Loader(draw(_sources()), sampler, shard, draw(_operations(seeded, kinds)))
    if sampler.op == "own" and draw(st.integers(0, 5)) == 0:
        program = replace(program, source=_step("unsized"))
    return program
