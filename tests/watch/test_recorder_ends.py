"""The flight recorder when things end: disks, interrupts, forks and kills."""

import logging
import os
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset
from bushel.errors import ForkedError
from bushel.watch.recorder import Recorder
from bushel.watch.recording import read_recording
from bushel.watch.replay import replayed
from tests.watch.test_recorder import positional, run
from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]


def full_disk_at(path: Path, size: int, caplog: pytest.LogCaptureFixture) -> list[Any]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with bushel.iterate(positional(), record=path, every=2) as iterator:
        elements = [next(iterator) for _ in range(20)]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            with caplog.at_level(logging.WARNING, "bushel"):
                elements += list(iterator)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    return elements


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted, _ = run(positional(), tmp_path / "a")
    elements = full_disk_at(tmp_path / "b", 4321, caplog)
    np.testing.assert_array_equal(elements, wanted)
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "cannot be written any more" in warning and "training goes on" in warning
    recording = read_recording(tmp_path / "b")
    assert os.path.getsize(tmp_path / "b") == 4321
    assert recording.cut and not recording.damaged
    assert not replayed(recording, positional(), 90).differs


def test_nothing_follows_a_line_of_which_the_disk_took_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "a", os.write
    recorder = Recorder((os.open(path, os.O_WRONLY | os.O_CREAT), str(path)))
    recorder.write({"step": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:5]))
        recorder.write({"step": 2})
    assert not recorder.works
    recorder.write({"step": 3})
    assert path.read_bytes() == b'{"step":1}\n{"ste'


def test_an_exception_of_a_signal_handler_is_not_swallowed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writing, True)
    recorder = Recorder((writing, "a pipe that is full"))

    def interrupt(number: int, frame: object) -> None:
        raise TimeoutError("as a watch over the training may raise")

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError, match="watch over"):
            recorder.write({"step": 1})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert recorder.works
    recorder.close()
    os.close(reading)


class Interrupting(dict[str, Any]):
    """An element during whose checksum the user presses Ctrl-C, once."""

    armed = True

    def __iter__(self) -> Any:
        if Interrupting.armed:
            Interrupting.armed = False
            signal.raise_signal(signal.SIGINT)
        return super().__iter__()


def interrupting(number: int) -> Any:
    return Interrupting(x=number) if number == 10 else {"x": number}


def test_an_interrupt_loses_no_element(tmp_path: Path) -> None:
    Interrupting.armed = True
    dataset = MapDataset.range(30).map(interrupting)
    found = []
    with bushel.iterate(dataset, record=tmp_path / "a", every=5) as iterator:
        while True:
            try:
                found.append(next(iterator)["x"])
            except KeyboardInterrupt:
                assert iterator.get_state()["next_index"] == 10
            except StopIteration:
                break
    assert not Interrupting.armed
    assert found == list(range(30))
    assert [one["step"] for one in read_recording(tmp_path / "a").steps] == list(range(0, 30, 5))


def test_a_forked_process_does_not_write(tmp_path: Path) -> None:
    with bushel.iterate(positional(), record=tmp_path / "a", every=1) as iterator:
        for _ in range(4):
            next(iterator)
        before = (tmp_path / "a").read_bytes()
        child = os.fork()
        if not child:
            status = 1
            try:
                try:
                    for _ in iterator:
                        pass
                except ForkedError:
                    status = 0
                iterator.close()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert (tmp_path / "a").read_bytes() == before
        next(iterator)
    assert len(read_recording(tmp_path / "a").steps) == 5


def test_killed_at_once(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        try:
            iterator = bushel.iterate(positional(), record=tmp_path / "a", every=1, stats=False)
            for _ in range(5):
                next(iterator)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert [one["step"] for one in read_recording(tmp_path / "a").steps] == list(range(5))
