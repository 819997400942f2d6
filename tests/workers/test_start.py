"""What workers are started with: how many, prepared by whom, and what cannot be sent to them."""

import os
import pickle
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset, MultiprocessingOptions
from bushel.errors import PlanError, WorkerError
from bushel.transport.link import Link
from bushel.workers.payload import Payload, load, load_first
from tests.thorough import THOROUGH
from tests.workers import parts
from tests.workers.processes import descendants, linux, nurseries, take_until, told, workers_of
from tests.workers.streams import INLINE, make_loader, with_workers, workers

# How many.


@linux
def test_none_is_none() -> None:
    ds = MapDataset.range(5).map(lambda number: (number, os.getpid())).to_iter_dataset(INLINE)
    expected = [(number, os.getpid()) for number in range(5)]
    before = descendants()
    for options in (None, MultiprocessingOptions(), workers(0)):
        assert list(ds.mp_prefetch(options)) == expected
    assert [pid for _, pid in make_loader(_Mark(), workers=0)] == [os.getpid()] * 60
    assert descendants() == before


class _Mark(bushel.transforms.Map):
    def map(self, element: Any) -> Any:
        return element, os.getpid()


@linux
@pytest.mark.parametrize("count", [1, 2, 5] if THOROUGH else [1, 5])
def test_as_many_as_asked_for(count: int) -> None:
    with iter(with_workers(MapDataset.range(10**9), count)) as iterator:
        for number in range(200):
            assert next(iterator) == number
        assert len(workers_of()) == count
        assert len(nurseries()) == 1


@linux
def test_as_many_as_there_are_processors(tmp_path: Path) -> None:
    answer = told(
        tmp_path,
        """
        def count_workers():
            loader = bushel.DataLoader(
                data_source=bushel.RangeDataSource(0, 300, 1),
                sampler=bushel.IndexSampler(300, num_epochs=1),
                operations=[bushel.MapOperation(lambda n: (n, os.getpid()))],
                worker_count=None,
            )
            found = list(loader)
            assert [number for number, _ in found] == list(range(300))
            assert len({pid for _, pid in found} - {os.getpid()}) <= max(
                1, loader.multiprocessing_options.num_workers
            )
            return loader.multiprocessing_options.num_workers

        all_of_them = os.sched_getaffinity(0)
        first = count_workers()
        os.sched_setaffinity(0, {min(all_of_them)})
        tell(processors=len(all_of_them), all=first, one=count_workers())
        """,
    )
    assert 1 <= answer["all"] <= answer["processors"]
    assert 0 <= answer["one"] <= 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"num_workers": -1}, ValueError),
        ({"num_workers": 1, "per_worker_buffer_size": -1}, ValueError),
        ({"num_workers": "2"}, TypeError),
        ({"num_workers": 1.5}, TypeError),
    ],
    ids=str,
)
def test_what_is_refused(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=list(wrong)[-1]):
        MapDataset.range(3).to_iter_dataset().mp_prefetch(MultiprocessingOptions(**wrong))


def test_what_a_loader_refuses() -> None:
    with pytest.raises(PlanError, match="worker_count must not be negative, and is -1"):
        make_loader(workers=-1)
    with pytest.raises(PlanError, match="worker_buffer_size"):
        make_loader(workers=1, worker_buffer_size=-1)
    with pytest.raises(TypeError):
        make_loader(workers="2")  # type: ignore[arg-type]


# Prepared by whom.


def test_a_function_prepares_each_worker() -> None:
    ds = MapDataset.range(10**9).map(parts.who_am_i).to_iter_dataset(INLINE)
    with iter(ds.mp_prefetch(workers(2), parts.remember_start)) as iterator:
        seen = {}

        def both_seen(started: list[tuple[int, int, int]]) -> bool:
            # Once, and before any element.
            ((index, count, pid),) = started
            assert count == 2
            assert seen.setdefault(index, pid) == pid
            return len(seen) == 2

        take_until(iterator, both_seen)
    assert sorted(seen) == [0, 1]
    assert len(set(seen.values()) | {os.getpid()}) == 3


def test_a_closure_prepares_a_worker() -> None:
    name = "PREPARED_FOR_THIS_TEST"

    def prepare(index: int, count: int) -> None:
        os.environ[name] = f"{index} of {count}"

    ds = MapDataset.range(20).map(lambda _: os.environ.get(name)).to_iter_dataset(INLINE)
    assert set(ds.mp_prefetch(workers(1), worker_init_fn=prepare)) == {"0 of 1"}
    assert name not in os.environ


def test_a_function_that_fails_to_prepare_a_worker() -> None:
    def prepare(index: int, count: int) -> None:
        raise LookupError("no licence for this worker")

    ds = MapDataset.range(20).to_iter_dataset(INLINE).mp_prefetch(workers(2), prepare)
    with (
        pytest.raises(WorkerError, match="no licence for this worker") as caught,
        iter(ds) as iterator,
    ):
        next(iterator)
    assert "LookupError" in str(caught.value)


# What cannot be sent.


def test_a_function_with_a_lock() -> None:
    lock = threading.Lock()

    def guarded(number: int) -> int:
        with lock:
            return number

    with pytest.raises(PlanError, match=r"(?s)map\(guarded\).*lock"):
        next(iter(with_workers(MapDataset.range(5).map(parts.square).map(guarded), 1)))


class _Guarded(bushel.transforms.Map):
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def map(self, element: int) -> int:
        with self._lock:
            return element


def test_an_operation_of_a_loader_with_a_lock() -> None:
    assert len(list(make_loader(_Guarded(), workers=0))) == 60
    with pytest.raises(PlanError, match=r"(?s)_Guarded.*lock"):
        next(iter(make_loader(parts.Double(), _Guarded(), bushel.Batch(2), workers=2)))


class _OpenFile:
    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")

    def __len__(self) -> int:
        return 60

    def __getitem__(self, key: int) -> bytes:
        self.file.seek(key)
        return self.file.read(1)

    def __repr__(self) -> str:
        return "_OpenFile()"


def test_a_source_with_an_open_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(100))
    source = _OpenFile(tmp_path / "data")
    with source.file:
        with pytest.raises(PlanError, match=r"source\(_OpenFile\).* attribute `file` of"):
            next(iter(with_workers(MapDataset.source(source).map(len), 1)))
        with pytest.raises(PlanError, match="_OpenFile"):
            next(iter(make_loader(workers=1, source=source)))


def test_a_function_that_fails_to_prepare_cannot_be_sent() -> None:
    lock = threading.Lock()

    def prepare(index: int, count: int) -> None:
        lock.acquire()

    ds = MapDataset.range(20).to_iter_dataset(INLINE)
    with pytest.raises(PlanError, match=r"(?s)worker_init_fn.*lock"):
        next(iter(ds.mp_prefetch(workers(1), prepare)))


def test_a_module_that_only_the_trainer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("only_here")
    exec("def double(number):\n    return 2 * number", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    ds = with_workers(MapDataset.range(5).map(module.double), 1)
    with pytest.raises(WorkerError, match="only_here"), iter(ds) as iterator:
        next(iterator)


def test_a_module_that_does_not_import_in_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "licensed_module.py").write_text(
        "import os\n"
        "if os.environ['LICENSED_PROCESS'] != str(os.getpid()):\n"
        "    raise ImportError('no licence in this process')\n"
        "def double(number):\n"
        "    return 2 * number\n"
    )
    monkeypatch.setenv("LICENSED_PROCESS", str(os.getpid()))
    monkeypatch.syspath_prepend(tmp_path)
    import licensed_module  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "licensed_module", raising=False)
    monkeypatch.setitem(sys.modules, "licensed_module", licensed_module)
    ds = with_workers(MapDataset.range(5).map(licensed_module.double), 2)
    with pytest.raises(WorkerError, match="no licence in this process"), iter(ds) as iterator:
        next(iterator)


# Arrays that are sent to them, and stay what they are.

_ARRAYS = {
    "its own": np.arange(6, dtype=np.int16).reshape(2, 3),
    "a view": np.arange(20.0)[4:9],
    "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "every other": np.arange(10)[::2],
    "no dimension": np.array(3.5),
    "empty": np.empty((0, 4), dtype=np.uint8),
    "dates": np.array(["2024-02-29"], dtype="M8[D]"),
    "texts": np.array(["a", "bcd"]),
    "a structure": np.array([(1, 2.5)], dtype=[("a", ">i4"), ("b", "f8")]),
    "objects": np.array([{1: 2}, None], dtype=object),
    "a subclass": np.ma.masked_array([1, 2], [False, True]),
    "large": np.arange(5000),
}


@pytest.mark.parametrize("name", _ARRAYS)
@pytest.mark.parametrize("writable", [True, False])
def test_arrays_that_a_function_holds(name: str, writable: bool) -> None:
    array = _ARRAYS[name].copy(order="K") if name != "a view" else _ARRAYS[name]
    array.flags.writeable = writable
    payload = Payload([array, array], None)
    try:
        ours, theirs = socket.socketpair()
        payload.send(Link(ours))
        there = Link(theirs)
        assert load_first(there) is None
        found, again = load(there)
        ours.close(), theirs.close()
    finally:
        payload.close()
    assert found is again
    assert type(found) is type(array) and found.dtype == array.dtype
    assert found.shape == array.shape and found.tolist() == array.tolist()
    assert found.flags.f_contiguous == array.flags.f_contiguous
    # numpy forgets it of some, and what is large is mapped: each writes to pages of his own.
    as_numpy_has_it = pickle.loads(pickle.dumps(array, protocol=5)).flags.writeable
    assert found.flags.writeable in (writable, as_numpy_has_it) or name == "large"
