"""How a pipeline is cut into blocks never shows: by position, in runs, and as a stream."""

from typing import Any

import numpy as np
import pytest

from bushel.dataset import map_node
from bushel.run.definition import element
from bushel.run.inline import compile_node
from tests.contract.events import freeze, freeze_error, pull_events, run_events, wants_from
from tests.contract.pipelines import PIPELINES, RANDOM_ACCESS, Kit, by_turns, stream_of
from tests.thorough import THOROUGH

KITS = {
    "rows": Kit(),
    "columns": Kit("columns"),
    # Broken records that are read one by one are those of `test_states` and `test_threads`.
    "many, broken": Kit("many", (0, 7)),
}
every_kit = pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in RANDOM_ACCESS for kind in by_turns(name, KITS)]
)


def _outcomes(block: Any, size: int) -> list[Any]:
    """The outcomes of the positions of a block that it tells of."""
    rows = block.rows()
    assert len(block.positions) == len(rows) == len(block)
    out = [freeze(row) for row in rows]
    if block.failure is not None:
        out.append(freeze_error(block.failure.error))
    else:
        assert len(out) == size
    return out


def _one_by_one(node: Any, positions: list[int]) -> list[Any]:
    """By the definition, which knows no blocks."""
    return [_defined(node, place) for place in positions]


def _defined(node: Any, place: int) -> Any:
    try:
        return freeze(element(node, place))
    except Exception as error:
        return freeze_error(error)


@every_kit
def test_runs(name: str, kind: str) -> None:
    ds = PIPELINES[name](KITS[kind])
    stop = 2 * len(ds) + 3
    expected = _one_by_one(map_node(ds), list(range(stop)))
    for seed in range(4):
        evaluator = compile_node(map_node(ds))
        rng = np.random.default_rng(seed)
        start = 0
        while start < stop:
            size = int(rng.integers(1, 1 + min(stop - start, (2, 5, 20, 99)[seed])))
            got = _outcomes(evaluator.run(start, start + size), size)
            assert got == expected[start : start + len(got)]
            start += len(got)


@every_kit
def test_any_positions(name: str, kind: str) -> None:
    ds = PIPELINES[name](KITS[kind])
    rng = np.random.default_rng(5)
    evaluator = compile_node(map_node(ds))
    for size in (1, 2, 7, 30):
        positions = rng.integers(0, 3 * len(ds), size=size)
        got = _outcomes(evaluator.at(positions), size)
        assert got == _one_by_one(map_node(ds), positions.tolist())[: len(got)]
        if len(got) < size:
            assert got[-1][0] == "error"


@pytest.mark.parametrize("name", RANDOM_ACCESS)
def test_no_positions(name: str) -> None:
    ds = PIPELINES[name](Kit())
    assert compile_node(map_node(ds)).at(np.empty(0, dtype=np.int64)).rows() == []


@pytest.mark.parametrize("kit", [Kit(), Kit("columns")], ids=["rows", "columns"])
@pytest.mark.parametrize("name", RANDOM_ACCESS)
def test_by_position_as_streamed(name: str, kit: Kit) -> None:
    ds = PIPELINES[name](kit)
    by_position = [freeze(ds[place]) for place in range(len(ds))]
    everything = run_events(ds.to_iter_dataset(kit.read, allow_nones=True))
    assert [what for what, _ in everything] == by_position
    without_dropped = [freeze(element) for place in range(len(ds)) if (element := ds[place])]
    assert [what for what, _ in run_events(ds)] == without_dropped
    together = type(ds).__getitems__(ds, range(len(ds))) if hasattr(ds, "__getitems__") else []
    assert [freeze(element) for element in together] == by_position[: len(together)]


# Random numbers are there for positions from 0 on.
_NOT_RANDOM = [name for name in RANDOM_ACCESS if "random_map" not in repr(PIPELINES[name](Kit()))]


@pytest.mark.parametrize("name", _NOT_RANDOM)
def test_negative_positions(name: str) -> None:
    ds = PIPELINES[name](Kit())
    block = compile_node(map_node(ds)).at(np.arange(-len(ds), 0))
    single = [freeze(ds[place]) for place in range(-len(ds), 0)]
    assert [freeze(row) for row in block.rows()] == single


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in PIPELINES for kind in by_turns(name, KITS)]
)
def test_pulls_and_states(name: str, kind: str) -> None:
    kit = KITS[kind]
    expected = pull_events(stream_of(name, kit), [1] * 2000)
    assert run_events(stream_of(name, kit)) == expected
    for seed, largest in enumerate((2, 3, 8, 100) if THOROUGH else (3, 100)):
        assert pull_events(stream_of(name, kit), wants_from(seed, largest)) == expected


@pytest.mark.parametrize("name", PIPELINES)
def test_columns_and_rows_are_the_same(name: str) -> None:
    rows = run_events(stream_of(name, Kit("rows")))
    assert run_events(stream_of(name, Kit("many"))) == rows
    assert run_events(stream_of(name, Kit("columns"))) == rows
