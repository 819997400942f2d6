"""Arrays in named shared memory: opened by name, as views, and removed when told so."""

import copy
import gc
import inspect
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bushel.transport.shared_array import SharedMemoryArray, SharedMemoryArrayMetadata
from tests.property.profile import tried

NAMES = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not NAMES.is_dir(), reason="names are files on Linux only")


def is_there(name: str) -> bool:
    return (NAMES / name).exists()


@pytest.fixture
def array() -> Iterator[SharedMemoryArray]:
    """0 to 11 in three rows, removed in the end."""
    array = SharedMemoryArray((3, 4), np.int32)
    array[...] = np.arange(12).reshape(3, 4)
    array.unlink_on_del()
    yield array


def run(program: str, *arguments: str) -> str:
    """Runs a program in a process of its own, which must have nothing to complain about."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# What it is.


@tried
@given(
    arrays.arrays(
        st.one_of(arrays.scalar_dtypes(), arrays.unicode_string_dtypes(max_len=3)),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_any_array_is_opened_by_its_metadata(values: Any) -> None:
    array = SharedMemoryArray(values.shape, values.dtype)
    array.unlink_on_del()
    assert array.tobytes() == bytes(array.nbytes), "zeros"
    array[...] = values
    for opened in (
        SharedMemoryArray.from_metadata(pickle.loads(pickle.dumps(array.metadata))),
        pickle.loads(pickle.dumps(array)),
        pickle.loads(pickle.dumps(array, protocol=5)),
    ):
        assert type(opened) is SharedMemoryArray
        assert (opened.shape, opened.dtype) == (values.shape, values.dtype)
        assert opened.tobytes() == values.tobytes()
    name = array.metadata.name
    del array, opened
    assert not is_there(name)


def test_everybody_sees_what_is_written(array: SharedMemoryArray) -> None:
    opened = SharedMemoryArray.from_metadata(array.metadata)
    opened[1] = 100
    array[2, 2] = 200
    assert array.tolist() == opened.tolist() == [[0, 1, 2, 3], [100] * 4, [8, 9, 200, 11]]


PARTS = {
    "row": lambda array: array[1],
    "rows": lambda array: array[1:],
    "column": lambda array: array[:, 2],
    "transposed": lambda array: array.T,
    "backwards": lambda array: array[::-1, ::-2],
    "reshaped": lambda array: array.reshape(4, 3)[2:],
    "as bytes": lambda array: array.view(np.uint8)[1:, 3:],
    "nothing": lambda array: array[3:],
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_part_is_pickled_as_that_part(array: SharedMemoryArray, part: Any) -> None:
    mine = part(array)
    theirs = pickle.loads(pickle.dumps(mine))
    assert theirs.tolist() == mine.tolist()
    assert theirs.dtype == mine.dtype
    theirs[...] = 7
    assert (mine == 7).all()


def test_metadata_of_a_part_would_be_of_another(array: SharedMemoryArray) -> None:
    assert array[:2].metadata == SharedMemoryArrayMetadata(
        array.metadata.name, (2, 4), np.dtype(np.int32)
    )
    for part in (array[1], array.T, array[:, :2]):
        with pytest.raises(ValueError, match="cannot say which part"):
            part.metadata


def test_what_computations_make_is_ordinary(array: SharedMemoryArray) -> None:
    results = (array + 1, np.stack([array]), array.mean(axis=0), np.asarray(array), -array)
    assert {type(result) for result in results} == {np.ndarray}
    assert type(array.sum()) is np.int64
    before = array
    before += 1
    assert before is array and array[0, 0] == 1
    assert np.add(array, 1, out=array) is array


def test_a_copy_has_memory_of_its_own(array: SharedMemoryArray) -> None:
    for copied in (array.copy(), copy.deepcopy(array), np.empty_like(array)):
        copied[...] = 5
        assert array[0, 1] == 1
        for use in (lambda c=copied: c.metadata, lambda c=copied: c[1:].unlink_on_del()):
            with pytest.raises(ValueError, match="is a copy and not in shared memory"):
                use()
        arrived = pickle.loads(pickle.dumps(copied[1:]))
        assert type(arrived) is np.ndarray
        assert arrived.tolist() == [[5] * 4] * 2


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (((2,), object), TypeError, "cannot hold Python objects"),
        (((2, -1),), ValueError, r"cannot have the shape \(2, -1\)"),
        ((4,), TypeError, "not iterable"),
        (((2.5,),), TypeError, "integer"),
    ],
)
def test_what_cannot_be_is_refused(arguments: Any, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        SharedMemoryArray(*arguments)


@pytest.mark.parametrize("name", ["SharedMemoryArray", "SharedMemoryArrayMetadata"])
def test_it_is_called_as_in_grain(name: str) -> None:
    theirs, ours = getattr(grain.multiprocessing, name), globals()[name]
    methods = [method for method in vars(theirs) if method[0] != "_"]
    pairs = {method: (getattr(theirs, method), getattr(ours, method)) for method in methods}
    for their_method, our_method in [(theirs, ours), *pairs.values()]:
        assert callable(their_method) == callable(our_method)
        if callable(their_method):
            expected = inspect.signature(their_method).parameters.values()
            actual = inspect.signature(our_method).parameters.values()
            assert [(p.name, p.kind, p.default) for p in expected] == [
                (p.name, p.kind, p.default) for p in actual
            ]


# Memory of others.


def test_it_is_made_on_memory_that_is_open() -> None:
    memory = SharedMemory(create=True, size=100)
    try:
        array = SharedMemoryArray.from_shared_memory(memory, (5, 2), np.int64)
        array[...] = 3
        assert bytes(memory.buf[:16]) == (3).to_bytes(8, "little") * 2
        assert array.metadata.name == memory.name
        with pytest.raises(TypeError, match="too small"):
            SharedMemoryArray.from_shared_memory(memory, (500, 2), np.int64)
        memory.close()
        assert array[4, 1] == 3, "closing does no harm"
    finally:
        memory.unlink()


def test_memory_is_closed_and_removed_for_others() -> None:
    memory = SharedMemory(create=True, size=100)
    SharedMemoryArray.close_shm_async(memory, unlink=True)
    assert not is_there(memory.name)
    assert memory.buf is None


def test_python_opens_it_too(array: SharedMemoryArray) -> None:
    """By the class of its own; what it tells the resource tracker is known there already."""
    memory = SharedMemory(array.metadata.name)
    assert bytes(memory.buf[4:8]) == (1).to_bytes(4, "little")
    memory.close()


# Who removes it.


def test_it_goes_with_the_last_view(array: SharedMemoryArray) -> None:
    array = SharedMemoryArray((10,))
    name = array.metadata.name
    array.unlink_on_del()
    array.unlink_on_del()
    rest: Any = np.asarray(array[5:])[1:]
    del array
    assert is_there(name)
    rest[...] = 4
    del rest
    assert not is_there(name)


def test_a_view_may_be_the_one_to_say_so() -> None:
    array = SharedMemoryArray((10,))
    name = array.metadata.name
    array[5:].unlink_on_del()
    assert is_there(name)
    del array
    assert not is_there(name)


def test_it_stays_until_somebody_removes_it() -> None:
    """The process that is to open it may not have done so yet."""
    array = SharedMemoryArray((10,))
    metadata = array.metadata
    del array
    gc.collect()
    opened = SharedMemoryArray.from_metadata(metadata)
    metadata.close_and_unlink_shm()
    assert not is_there(metadata.name)
    opened[...] = 1  # Still there for who has it.
    with pytest.raises(FileNotFoundError):
        metadata.close_and_unlink_shm()
    with pytest.raises(FileNotFoundError, match="it was removed before it was opened"):
        SharedMemoryArray.from_metadata(metadata)


def test_mappings_are_closed_at_once() -> None:
    array = SharedMemoryArray((1 << 20,), np.uint8)
    array.unlink_on_del()
    name = array.metadata.name
    assert name in Path("/proc/self/maps").read_text()
    del array
    assert name not in Path("/proc/self/maps").read_text()


# Other processes.


def _make(connection: Any) -> None:
    array = SharedMemoryArray((1000,), np.int64)
    array[...] = np.arange(1000)
    connection.send((array.metadata, array[10:20]))
    connection.recv()


def test_a_worker_makes_and_the_parent_removes() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_make, args=(there,))
    process.start()
    there.close()
    metadata, part = here.recv()
    array = SharedMemoryArray.from_metadata(metadata)
    array.unlink_on_del()
    here.send("opened")
    process.join()
    assert process.exitcode == 0
    assert array.sum() == 499_500
    assert part.tolist() == list(range(10, 20))
    del array
    assert not is_there(metadata.name)


OPEN = """
import sys
import numpy as np
from bushel.transport.shared_array import SharedMemoryArray, SharedMemoryArrayMetadata
array = SharedMemoryArray.from_metadata(SharedMemoryArrayMetadata(sys.argv[1], (3, 4), np.int32))
print(array.sum())
"""


def test_to_open_is_not_to_remove(array: SharedMemoryArray) -> None:
    name = array.metadata.name
    for _ in range(2):
        assert run(OPEN, name) == "66\n"
    assert is_there(name)
    run(OPEN + "array.unlink_on_del()", name)
    assert not is_there(name)


MAKE = """
import os, sys
import numpy as np
from bushel.transport.shared_array import SharedMemoryArray
array = SharedMemoryArray((1000,))
array.unlink_on_del()
print(array.metadata.name, flush=True)
"""


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "sys.keep = array[1:]",
        "SharedMemoryArray.enable_async_del()",
        "SharedMemoryArray.enable_async_del(3, 0); del array",
        "SharedMemoryArray.enable_async_del(); SharedMemoryArray.enable_async_del(2, 9); del array",
    ],
)
def test_at_the_end_of_a_process_it_is_removed(ending: str) -> None:
    assert not is_there(run(MAKE + ending).strip())


def test_a_forked_process_leaves_it_to_its_parent() -> None:
    program = """
SharedMemoryArray.enable_async_del()
child = os.fork()
if not child:
    del array
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert SharedMemoryArray.from_metadata(array.metadata).shape == (1000,)
"""
    assert not is_there(run(MAKE + program).strip())


def test_threads_close_what_is_let_go_of() -> None:
    """All of it by the end, and with no more waiting than was allowed."""
    program = """
import threading
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from bushel.transport import shared_array
SharedMemoryArray.enable_async_del(num_threads=2, max_outstanding_requests=3)
assert sum(thread.name.startswith("bushel-close") for thread in threading.enumerate()) == 2
names = [array.metadata.name]
del array
for _ in range(50):
    array = SharedMemoryArray((100,))
    array.unlink_on_del()
    names.append(array.metadata.name)
    del array
memory = SharedMemory(create=True, size=10)
names.append(memory.name)
viewed = SharedMemory(create=True, size=10)
view = np.frombuffer(viewed.buf, np.uint8)
SharedMemoryArray.close_shm_async(viewed, True)  # Goes with the view.
SharedMemoryArray.close_shm_async(memory, True)
shared_array._closer.stop()
assert memory.buf is None
maps = Path("/proc/self/maps").read_text()
assert not [name for name in names if name in maps]
assert not [name for name in names if Path("/dev/shm", name).exists()]
del view
viewed.close()
"""
    run(MAKE + program)


@pytest.mark.parametrize("arguments", [(0, 50), (1, -1)])
def test_threads_that_cannot_be_are_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="needs a thread at least"):
        SharedMemoryArray.enable_async_del(*arguments)


def test_a_process_that_is_killed_leaves_nothing() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKE + "sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert is_there(name)
        os.kill(process.pid, signal.SIGKILL)
        # Python's resource tracker has the other end of stderr too: it ends after cleaning up.
        process.communicate()
    assert not is_there(name)
