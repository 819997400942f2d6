"""Elements on devices: the same values, the same states, and nothing left behind."""

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions
from bushel.errors import PlanError
from bushel.experimental import WithOptionsIterDataset, device_put
from tests.contract.events import freeze
from tests.patience import PATIENCE_SECONDS
from tests.thorough import slow

jax = pytest.importorskip("jax")

_ROOT = Path(__file__).parent.parent.parent
every_size = pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (1, 0), (1, 1), (4, 2), (100, 100)])


def _device() -> Any:
    return jax.local_devices(backend="cpu")[0]


def _put(ds: Any, sizes: tuple[int, int] = (4, 2)) -> IterDataset[Any]:
    return device_put(ds, _device(), cpu_buffer_size=sizes[0], device_buffer_size=sizes[1])


def _elements() -> MapDataset[Any]:
    def element(number: int) -> Any:
        return {
            "float": np.float32(number / 2),
            "row": np.full((2, 3), number, np.int32),
            "pair": (np.int8(number), np.bool_(number % 2)),
            "none": None,
        }

    return MapDataset.range(30).map(element)


def _as_numpy(element: Any) -> Any:
    return freeze(jax.tree_util.tree_map(np.asarray, element))


@every_size
@pytest.mark.parametrize("batch", [1, 4])
def test_values_and_types(sizes: tuple[int, int], batch: int) -> None:
    ds = _elements().batch(batch)
    got = list(_put(ds, sizes))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(got))
    assert [_as_numpy(element) for element in got] == [_as_numpy(element) for element in ds]


def test_what_is_random_access_and_what_is_a_stream() -> None:
    dropped = _elements().filter(lambda element: bool(element["pair"][1]))
    expected = [_as_numpy(element) for element in dropped]
    assert len(expected) == 15
    for ds in (dropped, dropped.to_iter_dataset(), _put(dropped)):
        assert [_as_numpy(element) for element in _put(ds)] == expected


def test_it_is_grains() -> None:
    grain = pytest.importorskip("grain")

    def build(library: Any) -> Any:
        ds = library.MapDataset.range(40).seed(5).shuffle().batch(4)
        ds = ds.map(lambda batch: {"x": batch, "y": batch.astype(np.float32) / 3})
        return library.experimental.device_put(ds.to_iter_dataset(), _device())

    ours, theirs = iter(build(bushel)), iter(build(grain))
    for one, other in zip(ours, theirs, strict=True):
        assert _as_numpy(one) == _as_numpy(other)
        assert one["x"].sharding == other["x"].sharding
        assert one["x"].weak_type == other["x"].weak_type


@every_size
@pytest.mark.parametrize("filtered", [True, False])
def test_states_are_those_of_what_was_handed_out(sizes: tuple[int, int], filtered: bool) -> None:
    numbers = MapDataset.range(60).seed(2).shuffle().to_iter_dataset()
    if filtered:
        numbers = numbers.filter(lambda number: number % 3 != 0)
    host = numbers.batch(4, batch_fn=np.stack)
    ds = _put(host, sizes)
    expected = [batch.tolist() for batch in host]
    moved, here = iter(ds), iter(host)
    for done in range(len(expected)):
        state = json.loads(json.dumps(moved.get_state()))
        assert state == here.get_state()
        again = iter(ds)
        again.set_state(state)
        assert again.get_state() == state
        assert [batch.tolist() for batch in again] == expected[done:]
        assert next(moved).tolist() == next(here).tolist() == expected[done]
    assert moved.get_state() == here.get_state()
    # A state knows nothing of devices.
    here.set_state(json.loads(json.dumps(state)))
    assert [batch.tolist() for batch in here] == expected[-1:]


def test_going_back_while_threads_are_ahead() -> None:
    iterator = iter(_put(MapDataset.range(1000).batch(2), (50, 50)))
    start = iterator.get_state()
    for steps in (0, 1, 7, 30):
        assert [next(iterator).tolist() for _ in range(steps)] == [
            [2 * step, 2 * step + 1] for step in range(steps)
        ]
        iterator.set_state(start)
    iterator.close()


# Errors.


class Unwanted(Exception):
    """What a map raises for an element that it does not like."""


def _refuse(number: int) -> int:
    if number in (3, 4, 9):
        raise Unwanted(number)
    return number


@every_size
def test_elements_that_fail(sizes: tuple[int, int]) -> None:
    iterator = iter(_put(MapDataset.range(12).map(_refuse), sizes))
    told: list[Any] = []
    while len(told) < 12:
        try:
            told.append(int(next(iterator)))
        except Unwanted as error:
            told.append(error.args)
        state = iterator.get_state()
        assert state["next_index"] == len(told)
    assert told == [0, 1, 2, (3,), (4,), 5, 6, 7, 8, (9,), 10, 11]
    assert next(iterator, None) is None


@every_size
def test_elements_that_no_device_holds(sizes: tuple[int, int]) -> None:
    source = [{"x": 1}, {"x": "text"}, {"x": 2}, {"x": np.array(["a", "b"])}, {"x": 3}]
    iterator = iter(_put(MapDataset.source(source), sizes))
    told: list[Any] = []
    for _ in source:
        try:
            told.append(int(next(iterator)["x"]))
        except TypeError as error:
            told.append(" ".join(error.__notes__))
    assert told[0::2] == [1, 2, 3]
    assert "element['x'] is str, which no device holds" in told[1]
    assert "element['x'] is an array of <U1, which no device holds" in told[3]
    assert "`device_put` at position 3" in told[3]
    assert next(iterator, None) is None


def test_a_tree_that_is_not_that_of_the_elements() -> None:
    iterator = iter(device_put(_elements(), {"x": _device()}))
    with pytest.raises(ValueError, match="prefix") as caught:
        next(iterator)
    assert "element['row']: (2, 3)" in " ".join(caught.value.__notes__)
    iterator.close()


@pytest.mark.parametrize("place", ["cpu", 3, {"x": "cpu"}])
def test_what_is_no_device(place: Any) -> None:
    with pytest.raises(PlanError, match="takes a device, a sharding, or a tree of shardings"):
        device_put(_elements(), place)


@pytest.mark.parametrize("name", ["cpu_buffer_size", "device_buffer_size"])
def test_sizes_that_cannot_be(name: str) -> None:
    with pytest.raises(PlanError, match=f"`{name}` must not be negative, and is -1"):
        device_put(_elements(), _device(), **{name: -1})
    with pytest.raises(TypeError, match="integer"):
        device_put(_elements(), _device(), **{name: 1.5})  # type: ignore[arg-type]


def test_what_is_no_dataset() -> None:
    with pytest.raises(TypeError, match="got a list"):
        device_put([1, 2], _device())  # type: ignore[arg-type]


# Threads.


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("bushel")]


def _assert_ended(threads: list[threading.Thread]) -> None:
    assert threads, "there was no thread to watch"
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("way", ["close", "forget", "fail"])
def test_threads_end(way: str) -> None:
    before = _threads()
    iterator = iter(_put(MapDataset.range(10**9).map(lambda n: 1 // (n - 5)).batch(1)))
    next(iterator)
    started = [thread for thread in _threads() if thread not in before]
    if way == "close":
        iterator.close()
    elif way == "fail":
        with pytest.raises(ZeroDivisionError):
            for _ in range(9):
                next(iterator)
    del iterator
    gc.collect()
    _assert_ended(started)


def _run(text: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join([str(Path(bushel.__file__).parent.parent), str(_ROOT)])
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
    )


_PROGRAM = """
import jax, numpy as np, threading
from bushel import MapDataset
from bushel.experimental import device_put
ds = MapDataset.range(10**9).map(lambda n: np.full(10_000, n, np.float32)).batch(4)
iterator = iter(device_put(ds, jax.devices()[0], cpu_buffer_size=9, device_buffer_size=9))
total = sum(float(next(iterator).sum()) for _ in range(3))
assert threading.active_count() >= 3, threading.enumerate()
"""


@pytest.mark.parametrize(
    ("ending", "code", "says"),
    [
        ("", 0, ""),
        pytest.param("raise SystemExit(3)", 3, "", marks=slow),
        ("raise ValueError('enough')", 1, "enough"),
    ],
)
def test_programs_end_while_threads_are_ahead(ending: str, code: int, says: str) -> None:
    done = _run(_PROGRAM + ending)
    assert done.returncode == code, done.stderr
    assert done.stderr.strip().endswith(says)
    assert "Fatal" not in done.stderr and "Exception ignored" not in done.stderr


# Memory.


def _sources() -> dict[str, Any]:
    rows = np.random.default_rng(0).random((64, 100, 100), np.float32)
    columns = MapDataset.source({"x": rows})
    return {
        "columns": columns.batch(8),
        "rows": MapDataset.source([{"x": row} for row in rows]).batch(8),
        "stream": columns.to_iter_dataset().filter(lambda _: True).batch(8),
        "lanes": columns.lanes(4).filter(lambda _: True).batch(8),
        "positions in lanes": columns.lanes(4).batch(8),
        "workers": columns.batch(8)
        .to_iter_dataset()
        .mp_prefetch(MultiprocessingOptions(num_workers=1)),
    }


@pytest.mark.parametrize("name", _sources())
def test_nothing_is_copied(name: str) -> None:
    batches: list[Any] = []

    def note(batch: Any) -> Any:
        batches.append(batch)
        return batch

    # Before batches are made: it has them begin where a device can use them.
    device_put(_elements(), _device())
    host = _sources()[name].map(note)
    moved = list(_put(host))
    assert len(moved) == len(batches) == 8
    for one, other in zip(moved, batches, strict=True):
        assert one["x"].unsafe_buffer_pointer() == other["x"].ctypes.data
    # All of them are kept, and none was made in the memory of another.
    expected = [batch["x"].copy() for batch in batches]
    batches.clear()
    gc.collect()
    for one, values in zip(moved, expected, strict=True):
        assert (np.asarray(one["x"]) == values).all()


def test_workers_behind_leave_devices_alone() -> None:
    ds = _put(MapDataset.range(6).to_iter_dataset()).map(lambda number: number + 1)
    moved = list(ds.mp_prefetch(MultiprocessingOptions(num_workers=1)))
    assert [int(number) for number in moved] == [1, 2, 3, 4, 5, 6]


def test_options_pass_through() -> None:
    options = bushel.experimental.DatasetOptions(filter_raise_threshold_ratio=0.5)
    nothing = MapDataset.range(5000).to_iter_dataset().filter(lambda _: False)
    with pytest.raises(ValueError, match="dropped 100"):
        list(WithOptionsIterDataset(_put(nothing), options))


# Several devices.


@pytest.fixture(scope="module")
def found() -> Any:
    done = _run("import runpy; runpy.run_module('tests.deliver.devices', run_name='__main__')")
    assert done.returncode == 0, done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def test_shardings(found: Any) -> None:
    assert found["one_sharding"] == [["rows"], ["rows"]]
    assert found["a_tree_of_shardings"] == [["rows", "columns"], ["rows"]]
    assert found["workers_before"] == found["one_sharding"]


def test_devices(found: Any) -> None:
    assert found["a_device_that_is_not_the_first"] == [2]
    assert found["a_device_and_a_sharding"] == [[0, 1, 2, 3], [3]]


def test_lanes_on_devices(found: Any) -> None:
    first = [[[0, 4], [1, 5], [2, 6], [3, 7]]]
    assert found["lanes"][:1] == first
    assert len(found["lanes"]) == 4


def test_rows_that_do_not_fit(found: Any) -> None:
    for notes in found["rows_that_do_not_fit"]:
        assert "while moving an element with shapes element: (5, 4) to devices" in notes[0]
    assert len(found["rows_that_do_not_fit"]) == 2
