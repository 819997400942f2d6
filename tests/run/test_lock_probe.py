"""How much of its time work holds the interpreter's lock is seen from outside."""

import gc
import threading
import zlib

from bushel.run.lock_probe import LockProbe

NOISE = bytes(range(256)) * 4000


def _python() -> None:
    sum(i * i for i in range(20_000))


def _native() -> None:
    zlib.crc32(NOISE)  # Without the lock.


def _share(work: object, looks: int = 30) -> float:
    probe = LockProbe()
    probe.start()
    probe.working = True
    while probe.looks < looks:
        work()  # type: ignore[operator]
    probe.stop(wait=True)
    return probe.taken / probe.looks


def test_python_holds_the_lock_and_native_code_does_not() -> None:
    assert _share(_python) > 0.8
    assert _share(_native) < 0.5


def test_it_looks_only_while_somebody_works() -> None:
    probe = LockProbe()
    probe.start()
    assert threading.active_count() > 1
    while probe.look(taken=True):
        assert probe.looks == probe.taken == 0
        probe.stop()
    probe.working = True
    probe.look(taken=True)
    assert probe.looks == 0
    probe.stop(wait=True)


def test_it_ends_with_its_user() -> None:
    probe = LockProbe()
    probe.start()
    (thread,) = (t for t in threading.enumerate() if t.name == "bushel-lock")
    del probe
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
