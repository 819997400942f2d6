"""A state remembers the code and the files that it was made with, and says what changed."""

import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import DataLoader, IterDataset, MapDataset
from bushel.checkpoint import merge_states
from bushel.core import code_used
from bushel.core.fingerprint import behaviour_of
from bushel.errors import ChangedPipelineWarning, StateError


def _adding(number: int) -> Callable[[int], int]:
    return lambda x: x + number


@dataclass(frozen=True)
class Scale(bushel.transforms.Map):
    by: int

    def map(self, element: int) -> int:
        return element * self.by


class Squares:
    """A callable whose count is none of its behaviour."""

    calls = 0

    def __call__(self, x: int) -> int:
        self.calls += 1
        return x * x


def _counting() -> Callable[[int], int]:
    calls = 0

    def count(x: int) -> int:
        nonlocal calls
        calls += 1
        return x

    return count


def _looking_up(table: dict[str, int]) -> Callable[[dict[str, int]], dict[str, int]]:
    def look_up(x: dict[str, int]) -> dict[str, int]:
        x["y"] = x["x"] * table["by"]
        return x

    return look_up


@dataclass
class Noting(bushel.transforms.Map):
    seen: list[int]
    count: int = 0

    def map(self, element: int) -> int:
        self.seen.append(element)
        self.count += 1
        return element


def _memories(used: bool) -> list[Any]:
    """Functions with a memory: after some elements, or before any."""
    seen: list[int] = []
    table: dict[Any, Any] = {"rows": {}}
    left = {3, 5}

    def note(x: int) -> int:
        seen.append(x)
        return x

    def index(x: int) -> int:
        table[(x, len(str(x)))] = x
        return x

    def inner(x: int) -> int:
        table["rows"][x] = x
        return x

    def comprehended(x: int) -> int:
        return sum(seen.append(y) or y for y in (x, x))  # type: ignore[func-returns-value]

    def first(x: int) -> bool:
        left.discard(x)
        del table["rows"]
        return not left

    def by_default(x: int, memory: list[int] = []) -> int:  # noqa: B006
        memory.append(x)
        return x

    def by_argument(memory: list[int], x: int, *, names: dict[int, int]) -> int:
        memory.append(x)
        names.setdefault(x, x)
        return x

    by_default.__defaults__ = ([],)
    partial = functools.partial(by_argument, [], names={})
    functions = [note, index, inner, comprehended, by_default, partial, Noting([]), first]
    for function in functions if used else ():
        (function.map if isinstance(function, Noting) else function)(3)  # type: ignore[operator]
    return functions


SAME: list[tuple[Any, Any]] = [
    (lambda x: x + 1, lambda x: x + 1),
    (_adding(2), _adding(2)),
    (functools.partial(_adding, 2), functools.partial(_adding, 2)),
    (Scale(2), Scale(2)),
    (Squares(), Squares()),
    (abs, abs),
    (_counting(), _counting()),
    *zip(_memories(used=False), _memories(used=True), strict=True),
]
OTHERS: list[tuple[Any, Any]] = [
    (lambda x: x + 1, lambda x: x + 2),
    (lambda x: x + 1, lambda x: x - 1),
    (lambda x: x.real, lambda x: x.imag),
    (lambda x, n=1: x + n, lambda x, n=2: x + n),
    (lambda x: [y + 1 for y in x], lambda x: [y + 2 for y in x]),
    (_adding(2), _adding(3)),
    (functools.partial(_adding, 2), functools.partial(_adding, 3)),
    (Scale(2), Scale(3)),
    (_looking_up({"by": 2}), _looking_up({"by": 3})),
    (abs, float),
    (lambda x: x in {"a", "b"}, lambda x: x in {"a", "c"}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_behaviour(one: Any, other: Any) -> None:
    assert behaviour_of(one) == behaviour_of(other)
    if isinstance(one, Squares):
        one(3)
        assert behaviour_of(one) == behaviour_of(other)


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_another_behaviour(one: Any, other: Any) -> None:
    assert behaviour_of(one) != behaviour_of(other)


# Modules of a program: a function `f`, and what may be another way of the same or of another.
_HELPED = "def half(x):\n    return x // {}\ndef f(x):\n    return half(x)\n"
_DEEPER = "def g(x): return {}\n@functools.cache\ndef h(x): return g(x)\ndef f(x): return h(x)\n"
_CONSTANT = "SIZE = {}\ndef f(x):\n    return x + SIZE\n"
_COMPUTED = "SIZE = int('{}')\ndef f(x):\n    return x + SIZE\n"
_SET = "SIZE = {}\ndef grow():\n    global SIZE\n    SIZE += 1\ndef f(x):\n    return x + SIZE\n"
_LISTED = "SEEN = {}\ndef f(x):\n    SEEN.append(x)\n    return x\n"
_HANDED_ON = "def made(seen):\n    return lambda x: note(seen, x)\nf = made({})\n"
_NESTED = "def made(table):\n    return lambda x: table['rows'][x]\nf = made({{'rows': {}}})\n"
_LOOKED_UP = "def made(table):\n    return lambda x: table[x['label']]\nf = made({})\n"
_OBJECT = """
class Crop:
    def __init__(self, size, seed=0):
        self._size, self.seed, self.started, self.cache = size, seed, {}, None
    def __call__(self, x):
        self.cache = self.cache or x
        return x[: self._size]
    def reseed(self):
        self.seed += 1
f = Crop({})
"""
_METHOD_HELPED = _HELPED.replace("def f(x)", "class F:\n  def __call__(self, x)") + "f = F()\n"
MODULES: list[tuple[str, list[Any], list[Any], bool]] = [
    (_HELPED, [2], [3], False),
    (_METHOD_HELPED, [2], [3], False),
    (_DEEPER, ["x + 1"], ["x + 2"], False),
    (_DEEPER, ["h(x)"], ["h(x)"], True),
    (_DEEPER + "f = h\n", ["x + 1"], ["x + 2"], False),
    (_CONSTANT, [2], [3], False),
    (_CONSTANT, [(1, 2)], [(1, 3)], False),
    (_COMPUTED, [2], [3], True),
    (_SET, [2], [3], True),
    (_CONSTANT, [[2]], [[3]], True),
    (_LISTED, [[]], [[3]], True),
    (_HANDED_ON, [[]], [[3]], True),
    (_NESTED, [{1: 2}], [{1: 3}], True),
    (_LOOKED_UP, [{"a": 2}], [{"a": 3}], False),
    (_OBJECT, [1.5, 3], [1.5, 4], False),
    (_OBJECT, [1.5, 3], [2.5, 3], True),
    (_OBJECT, [1.5, "3, seed=1"], [1.5, "3, seed=2"], True),
]


@pytest.mark.parametrize(("text", "one", "other", "same"), MODULES)
def test_what_is_used_of_a_module(
    text: str, one: list[Any], other: list[Any], same: bool, tmp_path: Path
) -> None:
    assert (_of_module(tmp_path, text, one) == _of_module(tmp_path, text, other)) == same


def _of_module(folder: Path, text: str, values: list[Any]) -> str:
    """The digest of `f` in a module, as a program that imports it tells it."""
    path = folder / "own_module.py"
    path.write_text("import functools\n" + text.format(*values))
    code_used.literals_of.cache_clear()
    spec = importlib.util.spec_from_file_location("own_module", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["own_module"] = importlib.util.module_from_spec(spec)
    try:
        exec(compile(path.read_text(), path, "exec"), vars(module))
        return behaviour_of(module.f)
    finally:
        del sys.modules["own_module"]
        code_used.is_of_the_program.cache_clear()


def test_the_same_in_every_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from bushel.core.fingerprint import behaviour_of, digest_of\n"
        "def outer(names):\n    return lambda x: x in names and x not in {'p', 'q', 'r'}\n"
        "print(behaviour_of(outer(frozenset('abc'))))\n"
    )
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, str(program)]
        found.add(subprocess.run(command, env=environment, capture_output=True, text=True).stdout)
    assert len(found) == 1
    assert len(found.pop().strip()) == 16


def _state(ds: Any) -> Any:
    with iter(ds) as iterator:
        next(iterator)
        return iterator.get_state()


def test_a_function_that_changed() -> None:
    def half(x: int) -> int:
        return x // 2

    before = MapDataset.range(9).map(half).to_iter_dataset()
    state = json.loads(json.dumps(_state(before)))

    def half(x: int) -> int:  # type: ignore[no-redef]
        return x // 3

    after = iter(MapDataset.range(9).map(half).to_iter_dataset())
    with pytest.raises(StateError, match=r"the code of `map\(half\)` changed.*strict=True"):
        after.set_state(state, strict=True)
    assert next(after) == 0
    with pytest.raises(StateError, match="changed"):
        after.load_state_dict(state, strict=True)
    with pytest.warns(ChangedPipelineWarning, match=r"the code of `map\(half\)` changed") as told:
        after.set_state(state)
    assert len(told) == 1
    assert list(after) == [x // 3 for x in range(1, 9)]
    # Saved again, it is a state of the new one.
    after.set_state(after.get_state(), strict=True)


def test_a_damaged_state_is_refused_before_anything_is_said() -> None:
    state = _state(MapDataset.range(9).map(abs).to_iter_dataset())
    other = iter(MapDataset.range(9).map(float).to_iter_dataset())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StateError, match="at element 10"):
            other.set_state({**state, "next_index": 10})


def test_the_warning_names_the_line_that_restores() -> None:
    ds = MapDataset.range(9).map(abs).to_iter_dataset()
    other = iter(MapDataset.range(9).map(float).to_iter_dataset())
    for restore in (other.set_state, other.load_state_dict):
        with pytest.warns(ChangedPipelineWarning) as told:
            restore(_state(ds))
        assert [warning.filename for warning in told] == [__file__]


def _loader() -> DataLoader[Any]:
    return DataLoader(
        data_source=range(9), sampler=bushel.IndexSampler(9, shuffle=False, num_epochs=1)
    )


def test_a_state_of_a_loader_is_not_one_of_a_dataset() -> None:
    loader = iter(_loader())
    ours = loader.state_dict()
    grains = {name: value for name, value in ours.items() if name != "bushel"}
    dataset = iter(MapDataset.range(9).to_iter_dataset())
    for state in (ours, grains):
        with pytest.raises(StateError, match=r"saved by a DataLoader, and this is a dataset's"):
            dataset.set_state(state)
    with pytest.raises(
        StateError, match=r"saved by a DataLoader, restore it into `iter\(loader\)`"
    ):
        dataset.set_state(loader.get_state())  # type: ignore[arg-type]


def test_a_state_of_a_dataset_is_not_one_of_a_loader() -> None:
    loader = iter(_loader())
    ours = _state(MapDataset.range(9).to_iter_dataset())
    for state in (ours, {"next_index": 1}):
        for restore in (
            loader.load_state_dict,
            loader.set_state,
            lambda state: loader.set_state(json.dumps(state).encode()),
        ):
            with pytest.raises(StateError, match=r"no state of a DataLoader"):
                restore(state)  # type: ignore[operator]
    with pytest.raises(StateError, match=r"there is `load_state_dict`"):
        loader.set_state(loader.state_dict())  # type: ignore[arg-type]


def test_another_function_in_its_place() -> None:
    state = _state(MapDataset.range(9).map(abs).to_iter_dataset())
    other = iter(MapDataset.range(9).map(float).to_iter_dataset())
    with pytest.warns(ChangedPipelineWarning, match=r"`map\(abs\)` is `map\(float\)` now"):
        other.set_state(state)


def test_nothing_is_said_where_nothing_changed_or_nobody_knows() -> None:
    ds = MapDataset.range(9).map(lambda x: x + 1).to_iter_dataset().filter(lambda x: x > 2)
    state = _state(ds)
    older = {**state, "bushel": {k: v for k, v in state["bushel"].items() if k != "made_with"}}
    made = {**state["bushel"]["made_with"], "python": "3.9", "code": {"map(<lambda>)": "0"}}
    elsewhere = {**state, "bushel": {**state["bushel"], "made_with": made}}
    grains = {name: part for name, part in state.items() if name != "bushel"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kept in (state, older, elsewhere, grains):
            iter(ds).set_state(kept, strict=True)


@pytest.mark.parametrize(
    "made", [7, {"code": 3}, {"code": {"map": 3}, "python": "3"}, {"files": []}]
)
def test_what_is_damaged_is_refused(made: Any) -> None:
    ds = MapDataset.range(9).map(abs).to_iter_dataset()
    state = _state(ds)
    state["bushel"]["made_with"] = made
    with pytest.raises(StateError, match="of its code is damaged"):
        iter(ds).set_state(state)


def test_a_file_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f'{{"x": {number}}}\n' for number in range(9)))
    state = _state(MapDataset.source(bushel.open(str(path))).to_iter_dataset())
    path.write_text("".join(f'{{"x": {number}}}\n' for number in reversed(range(9))))
    os.utime(path, (1, 1))
    other = iter(MapDataset.source(bushel.open(str(path))).to_iter_dataset())
    with pytest.warns(ChangedPipelineWarning, match=r"lines.jsonl changed"):
        other.set_state(state)
    with pytest.raises(StateError, match=r"lines.jsonl changed"):
        other.set_state(state, strict=True)


def test_a_loader() -> None:
    def loader(by: int) -> DataLoader[Any]:
        sampler = bushel.IndexSampler(9, shuffle=False, num_epochs=1)
        return DataLoader(data_source=range(9), sampler=sampler, operations=[Scale(by)])

    iterator = iter(loader(2))
    next(iterator)
    state, other = iterator.get_state(), iter(loader(3))
    with pytest.warns(ChangedPipelineWarning, match=r"the code of `.*Scale.*` changed"):
        other.set_state(state)
    assert next(other) == 3
    with pytest.raises(StateError, match="changed"):
        other.set_state(state, strict=True)


def test_hosts_have_files_of_their_own() -> None:
    state = {"next_index": 3, "bushel": {"version": 1, "pipeline": [], "made_with": {"files": {}}}}
    other = {**state, "bushel": {**state["bushel"], "made_with": {"files": {"a": "1-2"}}}}  # type: ignore[dict-item]
    assert merge_states([state, other]) == state


def test_many_parts_take_little_room() -> None:
    parts = [MapDataset.range(9).map(abs).map(_adding(n)).to_iter_dataset() for n in range(300)]
    made = _state(IterDataset.mix(parts))["bushel"]["made_with"]
    assert len(json.dumps(made)) < 200


def _named(**added: int) -> IterDataset[Any]:
    streams = {
        name: MapDataset.range(9).map(_adding(number)).to_iter_dataset()
        for name, number in added.items()
    }
    return IterDataset.mix(streams)


def test_parts_by_name_are_compared_by_their_names() -> None:
    state = _state(_named(web=1, books=2))
    with pytest.warns(ChangedPipelineWarning, match=r"functions of part 'books' of a mixture ch"):
        iter(_named(web=1, books=3)).set_state(state)
    with pytest.raises(StateError, match="part 'books'"):
        iter(_named(books=3, code=7)).set_state(state, strict=True)
    # Parts may come and go.
    for other in (_named(web=1), _named(web=1, code=7), _named(books=2, web=1, x=3)):
        iter(other).set_state(state, strict=True)


def test_many_parts_by_name_take_little_room() -> None:
    many = {f"part_{number}": number for number in range(300)}
    state = _state(_named(**many))
    assert len(json.dumps(state["bushel"]["made_with"])) < 200
    iter(_named(**many)).set_state(state, strict=True)
    with pytest.warns(ChangedPipelineWarning, match="functions of 300 parts of a mixture"):
        iter(_named(**{**many, "part_7": -1})).set_state(state)
    iter(_named(**{**many, "more": -1})).set_state(state, strict=True)
