"""A worker that makes no progress is reported, with its stack, and dealt with as one wished."""

import ctypes
import logging
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset, MultiprocessingOptions
from bushel.errors import WorkerError
from bushel.workers.fragment import TaskMessage
from bushel.workers.hangs import HangWatch, _ticks
from bushel.workers.process import WorkerProcess
from bushel.workers.start import Starter
from bushel.workers.task import Task
from tests.patience import PATIENCE_SECONDS
from tests.thorough import usually
from tests.workers import parts
from tests.workers.processes import descendants, linux, nurseries, wait_until
from tests.workers.streams import INLINE, make_loader, signed_events, with_workers

pytestmark = linux

# Longer than a busy machine lets a worker wait for a core, which looks like a hang.
HANG_SECONDS = 2.0


def _sleep_for_ever() -> None:
    while True:
        time.sleep(3600)


def _hold_the_interpreter() -> None:
    # Unlike CDLL, PyDLL calls with the interpreter's lock held: no thread of Python runs.
    ctypes.PyDLL(None).sleep(3600)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _wait_for_a_lock() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


HANGS = {
    "asleep": _sleep_for_ever,
    "waiting for a lock": _wait_for_a_lock,
    "holding the interpreter": _hold_the_interpreter,
    "stopped": _stop,
}


def _texts(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("bushel") and record.levelno >= logging.WARNING
    )


def _assert_tells_of_the_hang(text: str) -> None:
    assert "map(load_record)" in text
    assert "_sleep_for_ever" in text
    assert "load_record" in text.replace("map(load_record)", "")
    assert re.search(r"position", text), text


def _hanging(hang: Any, once: parts.Once | None = None) -> Any:
    def load_record(number: int) -> int:
        if number == 50 and (once is None or once()):
            hang()
        return number

    return MapDataset.range(80).map(load_record).to_iter_dataset(INLINE)


def test_raise() -> None:
    before = descendants()
    ds = with_workers(_hanging(_sleep_for_ever), 1, hang_timeout=HANG_SECONDS, on_hang="raise")
    iterator = iter(ds)
    with pytest.raises(WorkerError) as caught:
        list(iterator)
    iterator.close()
    assert wait_until(lambda: not descendants() - before)
    _assert_tells_of_the_hang(str(caught.value))


class LoadRecord(bushel.transforms.Map):
    def map(self, element: int) -> int:
        if element == 50:
            _sleep_for_ever()
        return element


def test_raise_in_a_loader() -> None:
    loader = make_loader(
        LoadRecord(), bushel.Batch(4), workers=2, hang_timeout=HANG_SECONDS, on_hang="raise"
    )
    with pytest.raises(WorkerError, match=r"map\(LoadRecord\)") as caught, iter(loader) as iterator:
        list(iterator)
    assert "_sleep_for_ever" in str(caught.value)


@pytest.mark.parametrize(
    "name", [name for name in usually(HANGS, "holding the interpreter") if name != "asleep"]
)
def test_raise_whatever_holds_it(name: str) -> None:
    ds = with_workers(_hanging(HANGS[name]), 1, hang_timeout=HANG_SECONDS, on_hang="raise")
    with pytest.raises(WorkerError, match=r"map\(load_record\)"), iter(ds) as iterator:
        list(iterator)


@pytest.mark.parametrize("name", usually(HANGS, "asleep", "stopped"))
def test_replace(name: str, tmp_path: Path, caplog: Any) -> None:
    once = parts.Once(tmp_path / "hung")
    ds = with_workers(_hanging(HANGS[name], once), 2, hang_timeout=HANG_SECONDS, on_hang="replace")
    got = signed_events(iter(ds))
    assert once.pid() != os.getpid()
    # It hangs once alone.
    assert got == signed_events(iter(_hanging(HANGS[name], once)))
    if name == "asleep":
        _assert_tells_of_the_hang(_texts(caplog))
        assert str(once.pid()) in _texts(caplog)


def test_wait(tmp_path: Path, caplog: Any) -> None:
    gate = tmp_path / "closed"
    gate.touch()

    def load_record(number: int) -> int:
        return int(parts.Gate(gate)(number))

    ds = with_workers(
        MapDataset.range(30).map(load_record), 1, hang_timeout=HANG_SECONDS, on_hang="wait"
    )
    taken: list[Any] = []
    with iter(ds) as iterator:
        consumer = threading.Thread(target=lambda: taken.extend(iterator))
        consumer.start()
        reported = wait_until(lambda: "map(load_record)" in _texts(caplog), PATIENCE_SECONDS / 2)
        gate.unlink()
        consumer.join(PATIENCE_SECONDS)
    assert reported
    assert "parts.py" in _texts(caplog), "the place where it waits"
    assert taken == list(range(30))


def test_slow_is_not_hung(caplog: Any) -> None:
    """Progress is what counts: of single elements, however many are asked for at once."""

    def think(number: int) -> int:
        time.sleep(HANG_SECONDS / 20)
        return number

    ds = MapDataset.range(24).map(think)
    ds = with_workers(ds, 1, hang_timeout=HANG_SECONDS, on_hang="raise")
    assert list(ds) == list(range(24))
    assert not _texts(caplog)


def test_a_worker_that_nobody_asks_is_not_hung(caplog: Any) -> None:
    """A step of training may take long; meanwhile workers have nothing to do."""
    ds = with_workers(MapDataset.range(10**6), 2, hang_timeout=0.2, on_hang="raise")
    with iter(ds) as iterator:
        for number in range(3):
            assert next(iterator) == number
            time.sleep(0.5)  # The step: longer than the patience that was asked for.
    assert not _texts(caplog)


# Before they are ready.


def _init_hangs(index: int, count: int) -> None:
    _sleep_for_ever()


def _stuck_on_import(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function of a module that can be imported here, and waits elsewhere."""
    monkeypatch.syspath_prepend(folder)
    module = folder / "stuck_elsewhere.py"
    module.write_text("def load_record(number): return number\n")
    import stuck_elsewhere  # type: ignore[import-not-found]

    module.write_text("import time\ntime.sleep(3600)\n")
    return MapDataset.range(10).map(stuck_elsewhere.load_record).to_iter_dataset(INLINE)


@pytest.mark.parametrize("what", ["worker_init_fn", "importing", "starting"])
def test_starting_is_watched(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds: Any = MapDataset.range(10).to_iter_dataset(INLINE)
    init = None
    if what == "worker_init_fn":
        init = _init_hangs
    elif what == "importing":
        ds = _stuck_on_import(tmp_path, monkeypatch)
    options = MultiprocessingOptions(num_workers=1, hang_timeout=HANG_SECONDS, on_hang="raise")
    ds = ds.mp_prefetch(options, worker_init_fn=init)
    if what == "starting":
        (nursery,) = nurseries()
        os.kill(nursery, signal.SIGSTOP)
    with iter(ds) as iterator:
        with pytest.raises(WorkerError, match=f"no progress for .* in .*{what}") as caught:
            next(iterator)
        if what == "starting":
            assert next(iterator) == 0, "from another nursery"
        elif what == "worker_init_fn":
            assert "_sleep_for_ever" in str(caught.value)
        else:
            assert "stuck_elsewhere.py" in str(caught.value)


def test_one_that_hangs_in_starting_is_replaced(tmp_path: Path, caplog: Any) -> None:
    once = parts.Once(tmp_path / "hung")

    def init(index: int, count: int) -> None:
        if once():
            _sleep_for_ever()

    options = MultiprocessingOptions(num_workers=2, hang_timeout=HANG_SECONDS, on_hang="replace")
    ds = MapDataset.range(50).to_iter_dataset(INLINE).mp_prefetch(options, worker_init_fn=init)
    assert list(ds) == list(range(50))
    assert "worker_init_fn" in _texts(caplog)


def test_one_that_always_hangs_in_starting_is_given_up() -> None:
    options = MultiprocessingOptions(num_workers=1, hang_timeout=0.1, on_hang="replace")
    ds = MapDataset.range(50).to_iter_dataset(INLINE)
    ds = ds.mp_prefetch(options, worker_init_fn=_init_hangs)
    with pytest.raises(WorkerError, match=r"before they have started: .* because it hung"):
        list(ds)


def test_a_program_that_was_stopped_has_not_waited() -> None:
    """Ctrl-Z and, later, `fg`: what is longer than was asked for is nobody's time."""
    options = MultiprocessingOptions(num_workers=1, hang_timeout=10.0, on_hang="raise")
    watch = HangWatch(options, lambda task, operation: "a step")
    starter = Starter(1)
    worker = WorkerProcess(starter.start(0))
    worker.tasks.append(Task(TaskMessage(0, 0, {}, 1, False), 0))
    looks = 0
    try:
        with pytest.raises(WorkerError, match="no progress for 1"):
            while True:
                watch.look([worker], waited=3600.0)
                looks += 1
    finally:
        worker.end()
        starter.end()
    # It is told nothing, and waits: a quarter of the time at each look, after the first one.
    assert looks >= 5


def test_defaults() -> None:
    options: Any = MultiprocessingOptions()
    assert options.on_hang == "wait"
    assert options.hang_timeout is None or options.hang_timeout >= 60
    loader: Any = make_loader(workers=1, hang_timeout=7.5, on_hang="replace")
    assert loader.multiprocessing_options.hang_timeout == 7.5
    assert loader.multiprocessing_options.on_hang == "replace"


@pytest.mark.parametrize(
    "wrong", [{"on_hang": "explode"}, {"hang_timeout": -1.0}, {"hang_timeout": 0}], ids=str
)
def test_what_is_refused(wrong: Any) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        with_workers(MapDataset.range(3), 1, **wrong)
    with pytest.raises(ValueError, match=name):
        make_loader(workers=1, **wrong)


def test_what_a_process_has_computed_is_its_time_on_cores_and_not_that_of_its_children() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    before = _ticks(os.getpid())
    times = os.times()
    after = _ticks(os.getpid())
    assert before - 2 <= ticks * (times.user + times.system) <= after + 2
    assert _ticks(os.getpid()) > 0
