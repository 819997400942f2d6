"""Programs end with threads that are at work: by themselves, in time, and with their own code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bushel
from tests.patience import PATIENCE_SECONDS
from tests.thorough import THOROUGH

# What a program writes when it ends, after everything that was registered later than this.
_BEGINNING = """
import atexit, sys, threading

def tell_threads():
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("bushel")]
    print("left:", len(names), flush=True)

atexit.register(tell_threads)

import bushel
from bushel.experimental import ThreadPrefetchIterDataset
from bushel.core import ending

ending._PATIENCE_SECONDS = float(sys.argv[1])
records = bushel.MapDataset.range(1 << 40).map(lambda number: number)
read_options = bushel.ReadOptions(4, 64)
"""

# Each leaves an iterator behind whose threads are at work.
_PROGRAMS: dict[str, str] = {
    "threads": """
data = iter(records.to_iter_dataset(read_options).batch(8))
""",
    "threads of lanes": """
data = iter(records.lanes(4, read_options=read_options).filter(bool).batch(8))
""",
    "threads that wait for threads": """
ds = ThreadPrefetchIterDataset(records.to_iter_dataset(read_options), prefetch_buffer_size=8)
data = iter(ThreadPrefetchIterDataset(ds.batch(8), prefetch_buffer_size=8))
""",
    "a thread that waits for workers": """
ds = records.to_iter_dataset(read_options).batch(8)
ds = ds.mp_prefetch(bushel.MultiprocessingOptions(num_workers=1))
data = iter(ThreadPrefetchIterDataset(ds, prefetch_buffer_size=8))
""",
    "devices": """
import jax
from bushel.experimental import device_put

ds = records.to_iter_dataset(read_options).map(lambda number: number % 1000).batch(8)
data = iter(device_put(ds, jax.devices()[0]))
""",
}

# Those that are tried by other ends than the last line.
_ENDED = ("threads", "threads that wait for threads")
_ENDS = {
    "ends": ("", 0),
    "fails": ("raise ValueError('the training failed')", 1),
    "exits": ("sys.exit(3)", 3),
}

_USES = """
data.start_prefetch()
for _ in range(3):
    next(data)
assert any(thread.name.startswith("bushel") for thread in threading.enumerate())
"""


def _run(program: str, patience: float) -> "subprocess.CompletedProcess[str]":
    source = str(Path(bushel.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-c", _BEGINNING + program, str(patience)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "PYTHONPATH": source, "JAX_PLATFORMS": "cpu"},
    )


@pytest.mark.parametrize(
    ("name", "end"),
    [
        *((name, "ends") for name in _PROGRAMS if THOROUGH or name not in _ENDED),
        ("threads", "fails"),
        ("threads that wait for threads", "exits"),
    ],
)
def test_no_thread_is_left_when_the_interpreter_goes(name: str, end: str) -> None:
    if name == "devices":
        pytest.importorskip("jax")
    last, code = _ENDS[end]
    done = _run(_PROGRAMS[name] + _USES + last, patience=PATIENCE_SECONDS)
    assert done.returncode == code, done.stderr
    assert done.stdout == "left: 0\n"
    assert ("ValueError: the training failed" in done.stderr) == (end == "fails")


def test_a_thread_that_waits_for_another_host_is_ended() -> None:
    # The others' notes never come, as if they were busy.
    waiting = """
from bushel.lanes.agree import Agreement

asked = threading.Event()

class Board:
    def key_value_set(self, key, value): pass
    def key_value_dir_get(self, key): return []
    def key_value_delete(self, key): pass
    def blocking_key_value_get(self, key, timeout_in_ms):
        asked.set()
        threading.Event().wait(timeout_in_ms / 1000)
        raise RuntimeError("DEADLINE_EXCEEDED")

ds = bushel.MapDataset.range(90).lanes(
    2, shard_options=bushel.ShardOptions(0, 2), agree=Agreement(Board(), 0, 2, "test", 600.0)
)
data = iter(ThreadPrefetchIterDataset(ds.filter(bool).batch(2), prefetch_buffer_size=4))
data.start_prefetch()
assert asked.wait(60)
"""
    done = _run(waiting, patience=PATIENCE_SECONDS)
    assert (done.returncode, done.stdout) == (0, "left: 0\n"), done.stderr


def test_a_read_that_hangs_keeps_no_program_from_ending() -> None:
    hanging = """
reading = threading.Event()

def hang(number):
    reading.set()
    threading.Event().wait()

data = iter(records.map(hang).to_iter_dataset(bushel.ReadOptions(1, 8)))
data.start_prefetch()
assert reading.wait(60)
"""
    done = _run(hanging, patience=0.1)
    assert (done.returncode, done.stdout) == (0, "left: 1\n"), done.stderr
