"""Sources in shared memory among processes: by name, given, and how they end."""

import errno
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bushel.errors import SourceError
from bushel.sources.arrays.layout import LayoutWriter
from bushel.sources.arrays.shared import SharedMemoryDataSource
from tests.sources.sending import send_records
from tests.sources.test_shared import NAMES, is_there, name, needs_names, run, same

__all__ = ["name"]


READ_BY_NAME = """
import sys
from bushel.sources.arrays.shared import SharedMemoryDataSource
source = SharedMemoryDataSource(name=sys.argv[1])
print(source, *source, sep="|")
"""


@needs_names
def test_another_process_reads_by_name(name: str) -> None:
    """As often as it likes: Python 3.11 would remove the memory when the first reader ends."""
    source = SharedMemoryDataSource([1, "é", None, np.arange(3)], name=name)
    for _ in range(2):
        shown = f"InMemoryDataSource(name={name}, len=4)|1|é|None|[0 1 2]\n"
        assert run(READ_BY_NAME, name) == shown
    assert list(source)[:3] == [1, "é", None]
    assert is_there(name)


@needs_names
def test_a_pickle_carries_the_name_alone(name: str) -> None:
    source = SharedMemoryDataSource(np.arange(10_000), name=name)
    pickled = pickle.dumps(source)
    assert len(pickled) < 300
    again = pickle.loads(pickled)
    assert again.name == name
    same(source.columns, again.columns)
    del again
    assert is_there(name), "only its maker removes it"
    source.unlink()
    with pytest.raises(FileNotFoundError, match=f"no shared memory with the name '{name}'. Make"):
        pickle.loads(pickled)


@needs_names
def test_a_name_goes_with_its_maker(name: str) -> None:
    source = SharedMemoryDataSource([1, 2], name=name)
    reader = SharedMemoryDataSource(name=name)
    assert is_there(name)
    del source
    assert not is_there(name)
    assert list(reader) == [1, 2], "who has it open goes on"


@needs_names
def test_a_name_can_be_removed_by_anybody_and_twice(name: str) -> None:
    source = SharedMemoryDataSource([1, 2], name=name)
    reader = SharedMemoryDataSource(name=name)
    reader.unlink()
    reader.unlink()
    assert not is_there(name)
    other = SharedMemoryDataSource([3], name=name)
    other.unlink()
    source.unlink()
    # The name is free again, and the first one leaves it to the next.
    third = SharedMemoryDataSource([4], name=name)
    del source, other
    gc.collect()
    assert list(SharedMemoryDataSource(name=name)) == [4]
    del third


@needs_names
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    source = SharedMemoryDataSource([1], name=name)
    with pytest.raises(FileExistsError, match=f"shared memory with the name '{name}' already"):
        SharedMemoryDataSource([2], name=name)
    gc.collect()
    assert list(source) == list(SharedMemoryDataSource(name=name)) == [1]


@needs_names
def test_other_memory_is_refused(name: str) -> None:
    (NAMES / name).write_bytes(bytes(100))
    try:
        with pytest.raises(SourceError, match="does not hold the records of a SharedMemoryData"):
            SharedMemoryDataSource(name=name)
    finally:
        (NAMES / name).unlink()
    with pytest.raises(TypeError, match="is a string, and 5 is none"):
        SharedMemoryDataSource([1], name=5)  # type: ignore[arg-type]


@needs_names
def test_a_failure_while_writing_leaves_no_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("while writing")

    monkeypatch.setattr(LayoutWriter, "write", fail)
    with pytest.raises(MemoryError, match="while writing"):
        SharedMemoryDataSource([1], name=name)


@needs_names
def test_no_room_is_an_error_before_writing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a SIGBUS on the way."""

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"no room for 8,\d+ bytes .*\(No space left on device\)"):
        SharedMemoryDataSource(np.zeros(1000), name=name)
    # What has no name is not taken from there.
    assert len(SharedMemoryDataSource(np.zeros(1000))) == 1000


@needs_names
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_of_multiprocessing_is_given_it(name: str, named: bool, method: str) -> None:
    elements = ["a", 2, np.arange(4)]
    source = SharedMemoryDataSource(elements, name=name if named else None)
    context: Any = multiprocessing.get_context(method)
    for _ in range(2):
        here, there = context.Pipe()
        process = context.Process(target=send_records, args=(source, there))
        process.start()
        there.close()
        same(elements, here.recv())
        process.join()
        assert process.exitcode == 0
    assert is_there(name) == named


MAKE = """
import os, sys
import numpy as np
from bushel.sources.arrays.shared import SharedMemoryDataSource
kept = SharedMemoryDataSource({"x": np.arange(1000)}, name=sys.argv[1])
"""


@needs_names
@pytest.mark.parametrize(
    "ending",
    ["", "del kept", "kept.close()", "kept.unlink(); kept.close()", "sys.exit(0)"],
)
def test_a_process_that_ends_leaves_nothing(name: str, ending: str) -> None:
    run(MAKE + ending, name)
    assert not is_there(name)


@needs_names
def test_a_forked_process_leaves_it_to_its_parent(name: str) -> None:
    program = """
child = os.fork()
if not child:
    del kept
    sys.exit(0)
os.waitpid(child, 0)
assert SharedMemoryDataSource(name=sys.argv[1])[3] == {"x": 3}
"""
    run(MAKE + program, name)
    assert not is_there(name)


@needs_names
def test_a_process_that_is_killed_leaves_nothing(name: str) -> None:
    """Python's resource tracker outlives its process, and removes the name."""
    wait = 'print("made", flush=True)\nsys.stdin.read()'
    with subprocess.Popen(
        [sys.executable, "-c", MAKE + wait, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"made\n"
        reader = SharedMemoryDataSource(name=name)
        assert is_there(name)
        process.send_signal(signal.SIGKILL)
        # The tracker has the other end of stderr as well: when it is closed, both are gone.
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not is_there(name)
    assert reader[999] == {"x": 999}


@needs_names
def test_without_a_name_there_is_none() -> None:
    """Nothing to leave behind, whatever is killed."""
    source = SharedMemoryDataSource(np.arange(100_000))
    assert source.name is None
    maps = Path("/proc/self/maps").read_text()
    assert "memfd:bushel (deleted)" in maps
    opened = len(os.listdir("/proc/self/fd"))
    del source
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < opened
