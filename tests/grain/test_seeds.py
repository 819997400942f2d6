"""Seeds that random operations derive: from every seed upstream, by its distance."""

from itertools import islice
from typing import Any

import grain
from hypothesis import given
from hypothesis import strategies as st

import bushel
from tests.grain.oracle import Raised, assert_same, examples, outcome
from tests.grain.programs import Step, build, merge

_seeds = st.one_of(st.integers(0, 5), st.integers(0, 2**64))
_RANGE = merge("range", (), start=0, stop=20, step=1)
_ORDERS = {
    "map": {"f": "same", "via": "function"},
    "slice": {"start": None, "stop": None, "step": 1},
    "repeat": {"epochs": 1, "reseed": True},
    "window_shuffle": {"size": 2, "seed": 1},
    "shuffle": {"seed": 0},
    "filter": {"f": "all", "via": "function"},
}


def _graphs(seeded: bool = True) -> st.SearchStrategy[Step]:
    """Twenty numbers through a tangle of operations, with seeds here and there."""

    def extend(parts: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
        plain = st.tuples(parts, st.sampled_from(sorted(_ORDERS))).map(
            lambda both: both[0].then(both[1], **_ORDERS[both[1]])
        )
        seed = st.tuples(parts, _seeds).map(lambda both: both[0].then("seed", value=both[1]))
        many = st.lists(parts, min_size=1, max_size=3)
        merged = st.one_of(
            many.map(lambda inputs: _first_twenty(merge("concatenate", inputs))),
            many.map(lambda inputs: _first_twenty(merge("mix", inputs, weights=None))),
            many.map(lambda inputs: merge("zip", inputs)),
        )
        return st.one_of(plain, seed, seed, merged) if seeded else st.one_of(plain, merged)

    return st.recursive(st.just(_RANGE), extend, max_leaves=6)


def _first_twenty(program: Step) -> Step:
    return program.then("slice", start=0, stop=20, step=1)


def _elements(lib: Any, program: Step) -> Any:
    def read() -> list[Any]:
        dataset = build(lib, program)
        return [dataset[position] for position in (0, 1, 7, 19, 20, 45)]

    return outcome(read)


@examples(75)
@given(_graphs())
def test_shuffles(graph: Step) -> None:
    """Also when there is no seed upstream at all, which both refuse."""
    program = graph.then("shuffle", seed=None)
    assert_same(_elements(grain, program), _elements(bushel, program))


@examples(50)
@given(_graphs(), st.sampled_from(["words", "float"]))
def test_random_maps(graph: Step, function: str) -> None:
    program = graph.then("random_map", f=function, via="apply", seed=None)
    assert_same(_elements(grain, program), _elements(bushel, program))


@examples(30)
@given(st.lists(_graphs(), min_size=1, max_size=3), st.data())
def test_streams(graphs: list[Step], data: st.DataObject) -> None:
    """Seeds reach through the step to a stream, and streams carry seeds of their own."""
    reading = {"threads": 0, "buffer": 1, "allow_nones": False}
    parts = [graph.then("to_iter", **reading) for graph in graphs]
    parts = [
        part.then("seed", value=data.draw(_seeds)) if data.draw(st.booleans()) else part
        for part in parts
    ]
    if data.draw(st.booleans()):
        program = merge("zip_streams", parts, strict=True)
    else:
        program = merge("mix_streams", parts, weights=None, names=None)
    program = program.then("random_map", f="integer", via="function", seed=None)
    expected, actual = (outcome(lambda lib=lib: build(lib, program)) for lib in (grain, bushel))
    if not isinstance(expected, Raised):
        expected, actual = (list(islice(stream, 4)) for stream in (expected, actual))
    assert_same(expected, actual)


@examples(20)
@given(_graphs(seeded=False))
def test_without_any_seed(graph: Step) -> None:
    for op in ("shuffle", "random_map"):
        program = graph.then(op, seed=None, f="integer", via="function")
        theirs, ours = _elements(grain, program), _elements(bushel, program)
        assert isinstance(theirs, Raised), theirs
        assert_same(theirs, ours)
        assert isinstance(ours, Raised) and "seed" in str(ours.error)
