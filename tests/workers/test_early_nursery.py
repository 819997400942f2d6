"""What begins when a dataset is built: one process, for all of them, that nobody need use."""

import copy
import gc
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bushel import IterDataset, MapDataset
from tests.workers import parts
from tests.workers.processes import (
    assert_gone,
    descendants,
    linux,
    nurseries,
    running,
    told,
    wait_until,
    workers_of,
)
from tests.workers.streams import make_loader, pids_without_end, with_workers, workers

pytestmark = linux


@pytest.fixture(autouse=True)
def none_waits() -> Iterator[None]:
    """Begins where nothing that was built waits to be iterated."""
    gc.collect()
    assert wait_until(lambda: not nurseries())
    yield


def _the_nursery() -> int:
    (nursery,) = nurseries()
    return nursery


def test_one_waits_for_whatever_is_built_and_no_worker() -> None:
    loader = make_loader(parts.Double(), workers=2)
    assert wait_until(nurseries)
    nursery = _the_nursery()
    datasets = [with_workers(MapDataset.range(5), 2) for _ in range(20)]
    assert nurseries() == {nursery}
    assert not workers_of()
    # It stays for those that are left.
    del loader, datasets[1:]
    gc.collect()
    assert nurseries() == {nursery}
    assert list(datasets[0]) == list(range(5))


def test_it_ends_with_the_last_that_was_built() -> None:
    before = descendants()
    one, other = with_workers(MapDataset.range(5), 2), with_workers(MapDataset.range(5), 2)
    assert wait_until(nurseries)
    pids = descendants() - before
    assert len(pids) == 1
    longer = one.map(abs)
    del one, other
    gc.collect()
    assert nurseries() == pids
    del longer
    gc.collect()
    assert_gone(pids)
    assert descendants() == before


def test_who_is_iterated_first_has_it_and_others_with_it() -> None:
    first, second = pids_without_end(1), pids_without_end(1)
    assert wait_until(nurseries)
    nursery = _the_nursery()
    with iter(second) as iterator:
        next(iterator)
        assert nurseries() == {nursery}
        with iter(first) as other:
            assert next(other) != next(iterator)
            assert nurseries() == {nursery}
        assert nurseries() == {nursery}
        third = pids_without_end(1)
        assert nurseries() == {nursery}
        with iter(third) as other:
            next(other)
            iterator.close()
            assert nurseries() == {nursery}
    assert_gone({nursery})


def test_one_that_would_be_another_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    with iter(pids_without_end(1)) as iterator:
        next(iterator)
        nursery = _the_nursery()
        monkeypatch.setenv("STAGE", "second")
        with iter(with_workers(MapDataset.range(1).map(lambda _: os.environ["STAGE"]), 1)) as other:
            assert next(other) == "second"
            assert len(nurseries()) == 2
        assert wait_until(lambda: nurseries() == {nursery})


def test_none_without_workers() -> None:
    before = descendants()
    loader = make_loader(parts.Double(), workers=0)
    ds = with_workers(MapDataset.range(5), 0)
    assert loader and list(ds) == list(range(5))
    assert descendants() == before


def test_a_copy_starts_nothing() -> None:
    ds = with_workers(MapDataset.range(5), 1)
    pickled, copied = pickle.dumps(ds), copy.deepcopy(ds)
    assert wait_until(nurseries)
    del ds
    gc.collect()
    assert wait_until(lambda: not nurseries())
    loaded = pickle.loads(pickled)
    assert not nurseries()
    assert list(loaded) == list(copied) == list(range(5))


def test_one_that_was_killed_is_not_missed() -> None:
    ds = with_workers(MapDataset.range(5), 2)
    assert wait_until(nurseries)
    os.kill(_the_nursery(), signal.SIGKILL)
    assert wait_until(lambda: not nurseries())
    assert list(ds) == list(range(5))


def _has_loaded(pid: int, library: str) -> bool:
    return library in Path(f"/proc/{pid}/maps").read_text()


def test_one_that_waits_imports_what_workers_will_need() -> None:
    """Beside what all of them do: what the steps need that the program has built by then."""

    def look(index: int, count: int) -> None:
        import sys

        there = ("bushel.order.shuffle", "bushel.sources.text.lines", "numpy.random")
        os.environ["SEEN"] = " ".join(name for name in there if name in sys.modules)

    import bushel.sources.text.lines  # noqa: F401

    ds = MapDataset.range(1).shuffle(seed=1).map(lambda _: os.environ["SEEN"]).to_iter_dataset()
    ds = ds.mp_prefetch(workers(1), look)
    assert wait_until(nurseries)
    # The last of all.
    assert wait_until(lambda: _has_loaded(_the_nursery(), "/numpy/random/mtrand."))
    seen = _seen_by_a_worker(ds).split()
    assert seen[:2] == ["bushel.order.shuffle", "bushel.sources.text.lines"]


# What a process is born with.


def _seen_by_a_worker(ds: IterDataset[Any]) -> Any:
    with iter(ds) as iterator:
        return next(iterator)


def test_a_worker_has_what_the_program_has_when_it_is_iterated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(_: int) -> Any:
        return os.getcwd(), os.environ.get("STAGE"), sys.path[0], os.getpriority(0, 0)

    ds = with_workers(MapDataset.range(1).map(look), 1)
    assert wait_until(nurseries)
    early = _the_nursery()
    monkeypatch.chdir(tmp_path)
    assert _seen_by_a_worker(ds)[0] == str(tmp_path)
    assert_gone({early})
    ds = with_workers(MapDataset.range(1).map(look), 1)
    monkeypatch.setenv("STAGE", "second")
    assert _seen_by_a_worker(ds)[1] == "second"
    ds = with_workers(MapDataset.range(1).map(look), 1)
    monkeypatch.syspath_prepend(str(tmp_path / "later"))
    assert _seen_by_a_worker(ds)[2] == str(tmp_path / "later")


def test_what_was_printed_goes_where_the_program_prints_now(tmp_path: Path) -> None:
    text = """
        ds = MapDataset.range(1).map(lambda x: os.write(1, b"from a worker") and x)
        ds = ds.to_iter_dataset().mp_prefetch(workers(1))
        before = os.dup(1)
        file = os.open("printed", os.O_CREAT | os.O_WRONLY)
        os.dup2(file, 1)
        list(ds)
        os.dup2(before, 1)
        tell(printed=open("printed").read())
    """
    assert told(tmp_path, text)["printed"] == "from a worker"


# Programs that end, or fork.


def test_a_program_ends_that_iterated_nothing(tmp_path: Path) -> None:
    text = """
        ds = MapDataset.range(5).to_iter_dataset().mp_prefetch(workers(2))
        other = MapDataset.range(5).to_iter_dataset().mp_prefetch(workers(2))
        tell(built=True)
    """
    assert told(tmp_path, text) == {"built": True}


def test_a_program_is_killed_that_iterated_nothing(tmp_path: Path) -> None:
    text = """
        ds = MapDataset.range(5).to_iter_dataset().mp_prefetch(workers(2))
        tell(pid=os.getpid())
        time.sleep(600)
    """
    with running(tmp_path, text) as program:
        pid = program.hear()["pid"]
        assert wait_until(lambda: descendants(pid))
        pids = descendants(pid)
        os.kill(pid, signal.SIGKILL)
        assert_gone(pids)


def test_a_forked_child_leaves_it_to_the_program(tmp_path: Path) -> None:
    text = """
        ds = MapDataset.range(5).map(lambda x: os.getppid()).to_iter_dataset()
        ds = ds.mp_prefetch(workers(1))
        child = os.fork()
        if not child:
            mine = len(set(ds))
            del ds
            os._exit(mine)
        _, status = os.waitpid(child, 0)
        tell(child=os.waitstatus_to_exitcode(status), ours=len(set(ds)))
    """
    assert told(tmp_path, text) == {"child": 1, "ours": 1}
