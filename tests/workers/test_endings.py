"""However a program ends, its workers end too, and nothing is left on the machine."""

import signal
from pathlib import Path

import pytest

from tests.thorough import THOROUGH, usually
from tests.workers.processes import (
    assert_gone,
    descendants,
    is_alive,
    linux,
    running,
    told,
    wait_until,
)

pytestmark = linux

_TRAIN = """
    def work(number):
        return os.getpid()

    ds = MapDataset.range(10**9).map(work).to_iter_dataset().mp_prefetch(workers(2))
    iterator = iter(ds)
    pids = pids_of(iterator, 2)
    # Memory that has a name may be left behind; what is unlinked already ends with its last user.
    named = [
        line for pid in ["self", *pids] for line in open(f"/proc/{pid}/maps")
        if "/dev/shm/" in line and "(deleted)" not in line
    ]
    tell(workers=pids, named=named)
"""

_LOOP = """
    for _ in iterator:
        pass
"""
_IDLE = """
    time.sleep(3600)
"""
_CHECKPOINT_AND_EXIT = """
    def leave(*_):
        iterator.get_state()
        sys.exit(5)
    signal.signal(signal.SIGTERM, leave)
    tell(ready=True)
"""


# What the program does at last, and its exit code.
BY_ITSELF = {
    "at its last line": ("", 0),
    "by sys.exit": ("sys.exit(3)", 3),
    "by an exception": ("raise KeyError('training')", 1),
    "by os._exit": ("os._exit(4)", 4),
    "by an exception in the loop": ("for _ in iterator: raise KeyError('training')", 1),
    "with the stream in a cycle": ("loop = [iterator]; loop.append(loop); del iterator", 0),
    "in a thread that is left behind": (
        "import threading; threading.Thread(target=lambda: list(iterator), daemon=True).start()",
        0,
    ),
    "by abort": ("os.abort()", -signal.SIGABRT),
}


@pytest.mark.parametrize(
    "name",
    usually(
        BY_ITSELF,
        "at its last line",
        "by os._exit",
        "by an exception in the loop",
        "in a thread that is left behind",
    ),
)
def test_by_itself(name: str, tmp_path: Path) -> None:
    last, expected = BY_ITSELF[name]
    with running(tmp_path, _TRAIN + "    " + last) as program:
        heard = program.hear()
        pids = set(heard["workers"])
        assert not heard["named"]
        code, _, err = program.wait()
        assert_gone(pids)
    assert code == expected, err
    if expected == 0:
        assert err == ""
    elif expected == 1:
        assert err.rstrip().endswith("KeyError: 'training'")
        assert err.count("Traceback") == 1
    assert not list(program.temporary.iterdir())


SIGNALS = {
    "SIGTERM in the loop": (_LOOP, signal.SIGTERM),
    "SIGKILL in the loop": (_LOOP, signal.SIGKILL),
    "SIGKILL while it waits": (_IDLE, signal.SIGKILL),
    "SIGHUP while it waits": (_IDLE, signal.SIGHUP),
}


@pytest.mark.parametrize("name", usually(SIGNALS, "SIGTERM in the loop", "SIGKILL while it waits"))
def test_by_a_signal(name: str, tmp_path: Path) -> None:
    rest, number = SIGNALS[name]
    with running(tmp_path, _TRAIN + rest) as program:
        pids = set(program.hear()["workers"])
        program.kill(number)
        assert program.wait_for_exit() == -number
        assert_gone(pids)
    assert not list(program.temporary.iterdir())


def test_by_a_signal_that_the_program_handles(tmp_path: Path) -> None:
    with running(tmp_path, _TRAIN + _CHECKPOINT_AND_EXIT + _LOOP) as program:
        pids = set(program.hear()["workers"])
        assert program.hear() == {"ready": True}
        program.kill(signal.SIGTERM)
        code, _, err = program.wait()
        assert (code, err) == (5, "")
        assert_gone(pids)


@pytest.mark.parametrize("rest", [_LOOP, _IDLE], ids=["in the loop", "while it waits"])
def test_by_ctrl_c(rest: str, tmp_path: Path) -> None:
    with running(tmp_path, _TRAIN + rest) as program:
        pids = set(program.hear()["workers"])
        program.interrupt()
        code, _, err = program.wait()
        assert_gone(pids)
    assert code == -signal.SIGINT
    # The program says so; its workers, which hear Ctrl-C too, keep quiet.
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not list(program.temporary.iterdir())


def test_ctrl_c_need_not_be_the_end(tmp_path: Path) -> None:
    text = """
        ds = MapDataset.range(60).map(lambda n: time.sleep(0.001) or (n, os.getpid()))
        iterator = iter(ds.to_iter_dataset().mp_prefetch(workers(2)))
        taken = [next(iterator)]
        interrupts = -1
        while True:
            try:
                if interrupts < 0:
                    interrupts = 0
                    tell(ready=True)
                while len(taken) < 60:
                    taken.append(next(iterator))
                while not interrupts:
                    time.sleep(0.001)
                break
            except KeyboardInterrupt:
                interrupts += 1
        assert next(iterator, None) is None
        tell(numbers=[n for n, _ in taken], pids=len({pid for _, pid in taken}))
    """
    with running(tmp_path, text) as program:
        assert program.hear() == {"ready": True}
        program.interrupt()
        answer = program.hear()
        code, _, err = program.wait()
    assert (code, err) == (0, "")
    assert answer["numbers"] == list(range(60))
    # Ctrl-C is for the program, not for its workers; in the middle of a message, though, it
    # costs the two that there are.
    assert answer["pids"] <= 4


@pytest.mark.parametrize("count", [1, 3] if THOROUGH else [3])
def test_ctrl_c_while_workers_are_started(count: int, tmp_path: Path) -> None:
    """They are deaf to it from their first moment."""
    text = f"""
        iterator = iter(MapDataset.range(60).to_iter_dataset().mp_prefetch(workers({count})))
        iterator.start_prefetch()
        interrupts = -1
        while interrupts < 1:
            try:
                if interrupts < 0:
                    interrupts = 0
                    tell(ready=True)
                time.sleep(0.001)
            except KeyboardInterrupt:
                interrupts += 1
        tell(numbers=list(iterator))
    """
    with running(tmp_path, text) as program:
        assert program.hear() == {"ready": True}
        assert wait_until(lambda: descendants(program.pid))
        program.interrupt()
        assert program.hear() == {"numbers": list(range(60))}
        code, _, err = program.wait()
    assert (code, err) == (0, "")


_STUCK = """
    def work(number):
        if os.path.exists("stuck"):
            open(f"stuck-{os.getpid()}", "w").close()
            HOW
        return os.getpid()

    ds = MapDataset.range(10**9).map(work).to_iter_dataset().mp_prefetch(workers(2))
    iterator = iter(ds)
    pids = pids_of(iterator, 2)
    open("stuck", "w").close()
    tell(workers=pids)
"""
HOW_STUCK = {
    "asleep": "time.sleep(3600)",
    "busy": "while True: pass",
    "holding the interpreter": "__import__('ctypes').PyDLL(None).sleep(3600)",
    "deaf": "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)",
}


@pytest.mark.parametrize("how", usually(HOW_STUCK, "holding the interpreter", "deaf"))
def test_killed_while_its_workers_are_stuck(how: str, tmp_path: Path) -> None:
    text = _STUCK.replace("HOW", HOW_STUCK[how]) + _LOOP
    with running(tmp_path, text) as program:
        pids = set(program.hear()["workers"])
        # One is enough: while it is waited for, the other may have nothing left to do.
        assert wait_until(lambda: list(tmp_path.glob("stuck-*")))
        program.kill(signal.SIGKILL)
        program.wait_for_exit()
        assert_gone(pids)


def test_over_while_its_workers_are_stuck(tmp_path: Path) -> None:
    """Nobody waits for a worker that does not answer."""
    rest = """
    import threading
    threading.Thread(target=lambda: list(iterator), daemon=True).start()
    while not [name for name in os.listdir() if name.startswith("stuck-")]:
        time.sleep(0.005)
    """
    with running(tmp_path, _STUCK.replace("HOW", "time.sleep(3600)") + rest) as program:
        pids = set(program.hear()["workers"])
        code, _, err = program.wait()
        assert (code, err) == (0, "")
        assert_gone(pids)


def test_killed_before_its_workers_were_ready(tmp_path: Path) -> None:
    text = """
        iterator = iter(MapDataset.range(10**9).to_iter_dataset().mp_prefetch(workers(3)))
        tell(about_to_start=True)
        next(iterator)
        time.sleep(3600)
    """
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with running(folder, text) as program:
            program.hear()
            pids: set[int] = set()
            assert wait_until(lambda: len(descendants(program.pid)) > attempt)  # noqa: B023
            pids = descendants(program.pid)
            program.kill(signal.SIGKILL)
            program.wait_for_exit()
            assert_gone(pids)


# Forks.

_FORK = """
    import warnings
    warnings.simplefilter("ignore")

    def work(number):
        return number, os.getpid()

    ds = MapDataset.range(10**9).map(work).to_iter_dataset().mp_prefetch(workers(2))
    iterator = iter(ds)
    pids = set()
    taken = 0
    while len(pids) < 2:
        number, pid = next(iterator)
        assert number == taken
        taken += 1
        pids.add(pid)
"""
_GO_ON = """
    os.waitpid(child, 0)
    more = [next(iterator) for _ in range(3000)]
    assert [number for number, _ in more] == list(range(taken, taken + 3000))
    tell(same_workers={pid for _, pid in more} <= pids)
"""


def test_a_forked_child_is_told_to_make_its_own_iterator(tmp_path: Path) -> None:
    text = """
    child = os.fork()
    if not child:
        try:
            for _ in range(10**6):
                next(iterator)
        except RuntimeError as error:
            open("told", "w").write(type(error).__name__)
        os._exit(0)
    """
    assert told(tmp_path, _FORK + text + _GO_ON) == {"same_workers": True}
    assert (tmp_path / "told").read_text() == "ForkedError"


CHILDREN = {
    "exits at once": "os._exit(0)",
    "exits in good order": "sys.exit(0)",
    "lets go of the iterator": "del iterator, ds; import gc; gc.collect(); os._exit(0)",
    "closes the iterator": """
        try:
            iterator.close()
        except RuntimeError:
            pass
        os._exit(0)""",
    "has workers of its own": """
        own = iter(MapDataset.range(50).map(work).to_iter_dataset().mp_prefetch(workers(1)))
        assert [number for number, _ in own] == list(range(50))
        sys.exit(0)""",
    "uses the dataset": """
        assert [number for (number, pid), _ in zip(ds, range(100))] == list(range(100))
        sys.exit(0)""",
}


def test_forked_children_do_not_disturb(tmp_path: Path) -> None:
    """One after the other, so that each finds what the ones before have left."""
    text = "\n    done = 0" + "".join(
        f"""
    child = os.fork()
    if not child:
        {child}
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, ({name!r}, status)
    more = [next(iterator) for _ in range(1000)]
    assert [number for number, _ in more] == list(range(taken, taken + 1000)), {name!r}
    assert {{pid for _, pid in more}} <= pids, {name!r}
    taken += 1000
    done += 1
    """
        for name, child in CHILDREN.items()
    )
    assert told(tmp_path, _FORK + text + "\n    tell(children=done)") == {"children": len(CHILDREN)}


def test_a_forked_child_that_lives_on_keeps_no_worker_alive(tmp_path: Path) -> None:
    text = """
    child = os.fork()
    if not child:
        while True:
            time.sleep(3600)
    tell(workers=sorted(pids), child=child)
    """
    with running(tmp_path, _FORK + text + _IDLE) as program:
        answer = program.hear()
        program.kill(signal.SIGKILL)
        program.wait_for_exit()
        assert_gone(set(answer["workers"]))
        # The child is of the program's session, and ends with it.
        assert is_alive(answer["child"])
