"""What the system refuses to workers is said by the name of the limit; nothing hangs or is left."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.thorough import usually
from tests.workers.processes import linux, run

pytestmark = linux

# Files and processes are counted before, and when the iterator is closed and the error gone.
_PROGRAM = """
    import gc
    import resource
    import time
    def limit(kind, most, of=0):
        resource.prlimit(of, kind, (most, most))

    def files():
        return len(os.listdir("/proc/self/fd"))

    def children():
        with open(f"/proc/self/task/{os.getpid()}/children") as listed:
            return listed.read().split()

    def nursery():
        (pid,) = map(int, children())
        return pid

    ds = MapDataset.range(64).map(lambda n: np.full(300_000, n, np.uint8)).to_iter_dataset()
    list(ds.mp_prefetch(workers(1)))  # What is opened once, for all.
    ds = ds.mp_prefetch(workers({workers}))
    before = files()
    {limit}
    said, iterator = "", None
    try:
        iterator = iter(ds)
        got = sum(1 for _ in iterator)
    except bushel.errors.WorkerError as error:
        said = str(error)
    if iterator is not None:
        iterator.close()
    del ds, iterator
    until = time.monotonic() + 20
    while files() > before and time.monotonic() < until:
        gc.collect()  # What an exception refers to; and processes may be about to end.
    tell(said=said, files=files() - before, processes=len(children()))
"""


def _said(folder: Path, limit: str, workers: int = 2, head: str = "") -> str:
    """What a program with this limit was told; it has left nothing behind."""
    text = _PROGRAM.replace("{limit}", limit).replace("{workers}", str(workers))
    code, lines, err = run(folder, head + text)
    assert not code, err
    (told,) = lines
    assert (told["processes"], told["files"] <= 0) == (0, True), told
    return str(told["said"])


SOON: dict[str, tuple[str, str]] = {
    "no file": ("limit(resource.RLIMIT_NOFILE, files() + 2)", r"files open (`ulimit -n`)"),
    "some files": ("limit(resource.RLIMIT_NOFILE, files() + 11)", r"files open (`ulimit -n`)"),
    "size of files": ("limit(resource.RLIMIT_FSIZE, 0)", "files of 0 bytes (`ulimit -f`)"),
    "size of batches": ("limit(resource.RLIMIT_FSIZE, 5000)", "files of 5,000 bytes (`ulimit -f`)"),
    "memory of the trainer": (
        "limit(resource.RLIMIT_AS, 4096 * int(open('/proc/self/statm').read().split()[0]) + 10**6)",
        "(`ulimit -v`)",  # By whichever of its parts is refused first.
    ),
}


@pytest.mark.parametrize(
    "which", usually(SOON, "some files", "size of batches", "memory of the trainer")
)
def test_a_limit_is_named(which: str, tmp_path: Path) -> None:
    limit, name = SOON[which]
    assert name in _said(tmp_path, limit)


# No limit on processes holds for root. Another user may read what is root's all the same.
_ANOTHER_USER = (
    f"setpriv --reuid={100_000 + os.getpid()} --clear-groups --inh-caps=-all,+dac_override "
    "--ambient-caps=-all,+dac_override --bounding-set=-all,+dac_override"
).split()
_AS_ANOTHER_USER = f"""
    if os.getuid() == 0:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execvp("setpriv", [*{_ANOTHER_USER!r}, sys.executable, __file__])
"""


def _can_be_limited() -> bool:
    if os.getuid():
        return True
    found = shutil.which("setpriv") is not None
    return found and not subprocess.run([*_ANOTHER_USER, "true"], capture_output=True).returncode


@pytest.mark.skipif(not _can_be_limited(), reason="for root there is no limit on processes")
@pytest.mark.parametrize("of", ["0", "nursery()"])
def test_a_limit_on_processes_is_named(of: str, tmp_path: Path) -> None:
    """Of the trainer, which starts a nursery; and of the nursery, which forks workers."""
    head: Any = _AS_ANOTHER_USER
    said = _said(tmp_path, f"limit(resource.RLIMIT_NPROC, 1, {of})", 8, head)
    assert said.startswith("no worker process can be started: this user may have ")
    assert "(`ulimit -u`)" in said


@pytest.mark.skipif(os.getuid() != 0 or not _can_be_limited(), reason="needs a user of its own")
def test_a_limit_on_threads_is_named(tmp_path: Path) -> None:
    # Trainer, nursery and worker: there is none left for a thread of the worker.
    said = _said(tmp_path, "limit(resource.RLIMIT_NPROC, 3, nursery())", 1, _AS_ANOTHER_USER)
    assert "could not begin" in said
    assert "this user may have 3 processes and threads (`ulimit -u`)" in said
