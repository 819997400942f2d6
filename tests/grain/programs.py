"""Random pipelines, described once and built in either library.

A program is a tree of `Step`s. `build(lib, program)` makes a dataset of it with `grain` or
with `bushel`, and its repr reads like the code that one would type.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.grain.functions import (
    BATCH_FUNCTIONS,
    DTYPES,
    FILTERS,
    FLAT_MAPS,
    INDEX_MAPS,
    MAPS,
    RANDOM_MAPS,
    RECORDS,
    array_of,
)

INFINITE = sys.maxsize


@dataclass(frozen=True, repr=False)
class Step:
    """One operation on the datasets that its inputs describe."""

    op: str
    inputs: tuple["Step", ...] = ()
    args: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.args)[name]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.args)
        if not self.inputs:
            return f"{self.op}({shown})"
        if len(self.inputs) == 1 and self.op not in _MERGES:
            return f"{self.inputs[0]!r}.{self.op}({shown})"
        return f"{self.op}({list(self.inputs)!r}{', ' if shown else ''}{shown})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # What hypothesis shows of a failing example.

    def then(self, op: str, **args: Any) -> "Step":
        """Puts one more operation after this one."""
        return Step(op, (self,), tuple(args.items()))


_MERGES = frozenset({"concatenate", "mix", "select", "zip", "mix_streams", "zip_streams"})


def merge(op: str, inputs: Sequence[Step], **args: Any) -> Step:
    """An operation on several inputs."""
    return Step(op, tuple(inputs), tuple(args.items()))


def upstream(program: Step) -> list[Step]:
    """A step and all those that it reads from."""
    return [program, *(step for parent in program.inputs for step in upstream(parent))]


def uses(program: Step, *ops: str) -> bool:
    """Whether any of these operations is part of a program."""
    return any(step.op in ops for step in upstream(program))


def _transform(lib: Any, kind: str, function: Callable[..., Any]) -> Any:
    """An object of the library's own class for a kind of function."""
    base, method = {
        "map": (lib.transforms.Map, "map"),
        "map_with_index": (lib.transforms.MapWithIndex, "map_with_index"),
        "random_map": (lib.transforms.RandomMap, "random_map"),
        "filter": (lib.transforms.Filter, "filter"),
        "flat_map": (lib.experimental.FlatMapTransform, "flat_map"),
    }[kind]
    return type(f"A{kind}", (base,), {method: staticmethod(function), "max_fan_out": 3})()


def _function(kind: str, table: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """A builder for an operation that takes a function: given as such, or as an object."""

    def build_one(lib: Any, parents: list[Any], step: Step) -> Any:
        (parent,) = parents
        function = table[step["f"]]
        seed = {} if dict(step.args).get("seed") is None else {"seed": step["seed"]}
        if step["via"] == "apply":
            return parent.apply(_transform(lib, kind, function))
        transform = function if step["via"] == "function" else _transform(lib, kind, function)
        return getattr(parent, kind)(transform, **seed)

    return build_one


def _batch(lib: Any, parents: list[Any], step: Step) -> Any:
    function = BATCH_FUNCTIONS[step["f"]]
    if step["via"] == "apply":
        return parents[0].apply([lib.transforms.Batch(step["size"], step["drop"], function)])
    return parents[0].batch(step["size"], drop_remainder=step["drop"], batch_fn=function)


def _flat_map(lib: Any, parents: list[Any], step: Step) -> Any:
    (parent,) = parents
    transform = _transform(lib, "flat_map", FLAT_MAPS[step["f"]])
    if step["via"] == "apply":
        return parent.apply(transform)
    if isinstance(parent, lib.MapDataset):
        return lib.experimental.FlatMapMapDataset(parent, transform)
    return lib.experimental.FlatMapIterDataset(parent, transform)


def _select(lib: Any, parents: list[Any], step: Step) -> Any:
    class Selection(lib.transforms.DatasetSelectionMap):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return len(step["entries"])

        def __getitem__(self, index: int) -> tuple[int, int]:
            return step["entries"][index % len(step["entries"])]  # type: ignore[no-any-return]

    selection = list(step["entries"]) if step["plain"] else Selection()
    return lib.MapDataset.select_from_datasets(parents, selection)


def _window_shuffle(lib: Any, parents: list[Any], step: Step) -> Any:
    (parent,) = parents
    is_map = isinstance(parent, lib.MapDataset)
    name = "WindowShuffleMapDataset" if is_map else "WindowShuffleIterDataset"
    return getattr(lib.experimental, name)(parent, window_size=step["size"], seed=step["seed"])


def _mix_streams(lib: Any, parents: list[Any], step: Step) -> Any:
    if step["names"] is None:
        return lib.IterDataset.mix(parents, step["weights"])
    weights = step["weights"] and dict(zip(step["names"], step["weights"], strict=True))
    return lib.IterDataset.mix(dict(zip(step["names"], parents, strict=True)), weights)


_BUILDERS: dict[str, Callable[[Any, list[Any], Step], Any]] = {
    "range": lambda lib, _, s: lib.MapDataset.range(s["start"], s["stop"], s["step"]),
    "records": lambda lib, _, s: lib.MapDataset.source(
        [RECORDS[s["kind"]](i) for i in range(s["count"])]
    ),
    "numpy": lambda lib, _, s: lib.MapDataset.source(array_of(s["dtype"], s["shape"])),
    "seed": lambda _, parents, s: parents[0].seed(s["value"]),
    "shuffle": lambda _, parents, s: parents[0].shuffle(s["seed"]),
    "window_shuffle": _window_shuffle,
    "slice": lambda _, parents, s: parents[0][slice(s["start"], s["stop"], s["step"])],
    "repeat": lambda _, parents, s: parents[0].repeat(s["epochs"], reseed_each_epoch=s["reseed"]),
    "map": _function("map", MAPS),
    "map_with_index": _function("map_with_index", INDEX_MAPS),
    "random_map": _function("random_map", RANDOM_MAPS),
    "filter": _function("filter", FILTERS),
    "flat_map": _flat_map,
    "batch": _batch,
    "concatenate": lambda lib, parents, _: lib.MapDataset.concatenate(parents),
    "mix": lambda lib, parents, s: lib.MapDataset.mix(parents, s["weights"]),
    "select": _select,
    "zip": lambda lib, parents, _: lib.experimental.ZipMapDataset(parents),
    "mix_streams": _mix_streams,
    "zip_streams": lambda lib, parents, s: lib.experimental.ZipIterDataset(
        parents, strict=s["strict"]
    ),
    "prefetch": lambda lib, parents, s: lib.experimental.ThreadPrefetchIterDataset(
        parents[0], prefetch_buffer_size=s["buffer"]
    ),
}


def build(lib: Any, program: Step, threads: int | None = None) -> Any:
    """Makes the dataset that a program describes.

    `threads` replaces the number of reading threads wherever the program names one.
    """
    parents = [build(lib, parent, threads) for parent in program.inputs]
    if program.op == "to_iter":
        count = program["threads"] if threads is None else threads
        buffer = max(count, program["buffer"])
        options = lib.ReadOptions(num_threads=count, prefetch_buffer_size=buffer)
        return parents[0].to_iter_dataset(options, allow_nones=program["allow_nones"])
    return _BUILDERS[program.op](lib, parents, program)


def length(program: Step) -> int:
    """The length of a random-access program, so that strategies stay within what is valid."""
    parents = [length(parent) for parent in program.inputs]
    match program.op:
        case "range":
            return len(range(program["start"], program["stop"], program["step"]))
        case "records":
            return int(program["count"])
        case "numpy":
            return int(program["shape"][0])
        case "slice":
            bounds = slice(program["start"], program["stop"], program["step"])
            return len(range(*bounds.indices(parents[0])))
        case "repeat":
            if program["epochs"] is None:
                return INFINITE if parents[0] else 0
            return parents[0] * int(program["epochs"])
        case "flat_map":
            return parents[0] * 3
        case "batch":
            whole, rest = divmod(parents[0], program["size"])
            return whole + (rest > 0 and not program["drop"])
        case "concatenate":
            return sum(parents)
        case "mix":
            weights = program["weights"] or [1] * len(parents)
            scaled = [int(weight * (100 / min(weights))) for weight in weights]
            shares = zip(parents, scaled, strict=True)
            return min(INFINITE, *(int(n / (w / sum(scaled))) for n, w in shares))
        case "select":
            return len(program["entries"])
        case _:
            return parents[0]


# Strategies. Lengths are small: what matters is how operations nest, and the many epochs.

_seeds = st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 1))
_window_seeds = st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 200))
_weights = st.one_of(st.integers(1, 5), st.floats(0.05, 4.0, allow_subnormal=False))
_via = st.sampled_from(["function", "function", "object", "apply"])
_counts = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 0])
_functions = st.sampled_from([None, None, *BATCH_FUNCTIONS])
_bounds = st.one_of(st.none(), st.integers(-12, 12))
_strides = st.one_of(st.none(), st.integers(-4, -1), st.integers(1, 4))


@st.composite
def sources(draw: st.DrawFn) -> Step:
    """Ranges, lists of records of many kinds, numpy arrays of many types."""
    kind = draw(st.sampled_from(["range", "records", "numpy"]))
    if kind == "range":
        stride = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        start, count = draw(st.integers(-5, 5)), draw(_counts)
        return merge("range", (), start=start, stop=start + stride * count, step=stride)
    if kind == "records":
        record, count = draw(st.sampled_from(sorted(RECORDS))), draw(_counts)
        return merge("records", (), kind=record, count=count)
    shape = draw(st.tuples(_counts, st.integers(0, 2), st.integers(1, 2)))
    shape = shape[: draw(st.integers(1, 3))]
    return merge("numpy", (), dtype=draw(st.sampled_from(DTYPES)), shape=shape)


def _safe(table: dict[Any, Any], failing: bool) -> st.SearchStrategy[Any]:
    names = [name for name in table if failing or name not in ("boom", "too_many")]
    return st.sampled_from(names)


@st.composite
def elementwise(draw: st.DrawFn, program: Step, op: str, failing: bool) -> Step:
    """One of the operations that both datasets and streams have."""
    if op == "seed":
        return program.then("seed", value=draw(st.one_of(_seeds, st.integers(0, 2**40))))
    if op == "map":
        return program.then("map", f=draw(_safe(MAPS, failing)), via=draw(_via))
    if op == "map_with_index":
        return program.then("map_with_index", f=draw(_safe(INDEX_MAPS, failing)), via=draw(_via))
    if op == "filter":
        return program.then("filter", f=draw(_safe(FILTERS, failing)), via=draw(_via))
    if op == "flat_map":
        via = draw(st.sampled_from(["class", "apply"]))
        return program.then("flat_map", f=draw(_safe(FLAT_MAPS, failing)), via=via)
    if op == "window_shuffle":
        size, seed = draw(st.integers(1, 6)), draw(_window_seeds)
        return program.then("window_shuffle", size=size, seed=seed)
    if op == "batch":
        size, drop = draw(st.integers(1, 5)), draw(st.booleans())
        return program.then("batch", size=size, drop=drop, f=draw(_functions), via=draw(_via))
    assert op == "random_map", op
    # Without a seed of its own it derives one, which takes a seed upstream.
    seed = draw(st.none() | _seeds) if uses(program, "seed") else draw(_seeds)
    via = draw(_via) if seed is None else draw(st.sampled_from(["function", "object"]))
    return program.then("random_map", f=draw(_safe(RANDOM_MAPS, failing)), via=via, seed=seed)


_MAP_OPS = (
    "seed shuffle window_shuffle slice slice repeat map map_with_index random_map filter "
    "flat_map batch batch"
).split()


@st.composite
def _chained(draw: st.DrawFn, program: Step, failing: bool) -> Step:
    count, op = length(program), draw(st.sampled_from(_MAP_OPS))
    infinite = count > 10**6
    sparse = uses(program, "filter", "flat_map")
    if (
        (op == "repeat" and infinite)
        or (op == "batch" and sparse)
        or (op == "flat_map" and infinite)
    ):
        op = "map"
    if op == "batch" and infinite:
        # Grain divides in floating point, which is exact for powers of two only.
        args = {"size": draw(st.sampled_from([2, 4])), "drop": draw(st.booleans())}
        return program.then("batch", **args, f=draw(_functions), via="function")
    if op == "shuffle":
        seed = draw(st.none() | _seeds) if uses(program, "seed") else draw(_seeds)
        return program.then("shuffle", seed=seed)
    if op == "slice":
        if infinite:
            stop = draw(st.integers(1, 9))
            return program.then("slice", start=draw(st.integers(0, 3)), stop=stop, step=1)
        start, stop, step = draw(_bounds), draw(_bounds), draw(_strides)
        # Mostly one that leaves something.
        if not len(range(*slice(start, stop, step).indices(count))) and draw(st.integers(0, 7)):
            start, stop = draw(st.none() | st.integers(-count, count)), None
        return program.then("slice", start=start, stop=stop, step=step)
    if op == "repeat":
        epochs = draw(st.one_of(st.integers(1, 3), st.none()))
        return program.then("repeat", epochs=epochs, reseed=draw(st.booleans()))
    return draw(elementwise(program, op, failing))


@st.composite
def _merged(draw: st.DrawFn, parts: st.SearchStrategy[Step]) -> Step:
    op = draw(st.sampled_from(["concatenate", "mix", "mix", "select", "zip"]))
    inputs = draw(st.lists(parts, min_size=1, max_size=3))
    if op == "concatenate":
        return merge(op, [_finite(part) for part in inputs])
    if op == "zip":
        # Cut to one length; those that were longer keep epochs of their own.
        inputs = [_finite(part) for part in inputs]
        shortest = min(map(length, inputs))
        return merge(op, [_cut(part, shortest) for part in inputs])
    inputs = [part if length(part) else Step("range", (), _SMALL_RANGE) for part in inputs]
    count = len(inputs)
    if op == "mix":
        weights = st.lists(_weights, min_size=count, max_size=count)
        return merge(op, inputs, weights=draw(st.none() | weights))
    entry = st.tuples(st.integers(0, count - 1), st.integers(0, 30))
    entries = draw(st.lists(entry, min_size=1, max_size=6))
    return merge(op, inputs, entries=tuple(entries), plain=draw(st.booleans()))


_SMALL_RANGE = (("start", 0), ("stop", 3), ("step", 1))


def _cut(part: Step, stop: int) -> Step:
    return part.then("slice", start=0, stop=stop, step=1)


def _finite(part: Step) -> Step:
    return part if length(part) < 10**6 else _cut(part, 7)


def map_programs(failing: bool = False, max_leaves: int = 3) -> st.SearchStrategy[Step]:
    """Random-access programs; `failing` lets user functions raise."""

    def extend(parts: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
        def chain(data: tuple[Step, int]) -> st.SearchStrategy[Step]:
            program, steps = data
            strategy = st.just(program)
            for _ in range(steps):
                strategy = strategy.flatmap(lambda p: _chained(p, failing))
            return strategy

        chained = st.tuples(parts, st.integers(1, 4)).flatmap(chain)
        return st.one_of(chained, chained, _merged(parts))

    return st.recursive(sources(), extend, max_leaves=max_leaves)


_STREAM_OPS = (
    "seed map map_with_index random_map filter batch window_shuffle flat_map prefetch"
).split()


@st.composite
def stream_programs(
    draw: st.DrawFn, failing: bool = False, depth: int = 2, flat: bool = False
) -> Step:
    """Streams: a random-access program, read, then steps, mixtures and zips of streams.

    `flat` leaves out mixtures, zips and windows.
    """
    if depth and not flat and draw(st.integers(0, 3)) == 0:
        part = stream_programs(failing, depth - 1)
        inputs = draw(st.lists(part, min_size=1, max_size=3))
        if draw(st.booleans()):
            program = merge("zip_streams", inputs, strict=draw(st.booleans()))
        else:
            count = len(inputs)
            weights = draw(st.none() | st.lists(_weights, min_size=count, max_size=count))
            names = draw(st.none() | st.permutations("abcdef"[:count]).map(tuple))
            program = merge("mix_streams", inputs, weights=weights, names=names)
    else:
        source = draw(map_programs(failing, max_leaves=2))
        if length(source) > 40:
            source = _cut(source, draw(st.integers(1, 12)))
        threads = draw(st.sampled_from([0, 0, 1, 3]))
        buffer = draw(st.integers(max(1, threads), 8))
        allow_nones = draw(st.booleans())
        program = source.then("to_iter", threads=threads, buffer=buffer, allow_nones=allow_nones)
    for _ in range(draw(st.integers(0, 3))):
        op = draw(st.sampled_from([name for name in _STREAM_OPS if not flat or "win" not in name]))
        if op == "prefetch":
            program = program.then("prefetch", buffer=draw(st.integers(0, 5)))
        else:
            program = draw(elementwise(program, op, failing))
    return program
