"""Without what Linux alone has: no /proc, no files in memory, no descriptors of processes."""

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS
from tests.thorough import slow

# Python runs it first in each process, workers among them.
_TAKEN_AWAY = """
import errno, os, select, signal, sys

for module, names in {
    os: "memfd_create eventfd pidfd_open P_PIDFD waitid sched_getaffinity sched_setaffinity "
        "sched_getscheduler getresuid getresgid posix_fadvise posix_fallocate copy_file_range "
        "O_TMPFILE O_DIRECT fdatasync",
    select: "epoll",
    signal: "pidfd_send_signal sigtimedwait",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

def refuse(path):
    if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys")):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

def hook(event, details):
    if event in ("open", "os.listdir", "os.scandir"):
        refuse(details[0])

def looked_at(path, *args, stat=os.stat, **named):
    refuse(path)
    return stat(path, *args, **named)

sys.addaudithook(hook)
os.stat = looked_at
"""

_PROGRAM = """
import os, signal, sys
import numpy as np
import bushel
from bushel.cli.main import main

def record(number):
    assert not hasattr(os, "memfd_create") and not os.path.exists("/proc/self")
    return {"image": np.full((64, 256), number), "pid": os.getpid()}

ds = bushel.MapDataset.range(200).seed(1).shuffle().map(record).to_iter_dataset()
ds = ds.filter(lambda row: row["image"][0, 0] % 3 > 0).batch(4)
options = bushel.MultiprocessingOptions(num_workers=2, hang_timeout=600)
seen, pids = [], set()
with bushel.iterate(ds.mp_prefetch(options)) as iterator:
    for batch in iterator:
        seen.append(batch["image"].copy())
        pids.update(batch["pid"].tolist())
        if len(seen) == 3:
            os.kill(int(batch["pid"][0]), signal.SIGKILL)
        state = iterator.get_state()
assert os.getpid() not in pids and len(pids) >= 2, pids
expected = [batch["image"] for batch in ds]
np.testing.assert_array_equal(np.concatenate(seen), np.concatenate(expected))
assert iterator.stats().elements == len(seen)
str(iterator.stats()), str(ds.mp_prefetch(options).explain())

numbers = bushel.MapDataset.range(1_000).map(lambda i: {"n": i})
numbers.write("numbers", format="jsonl", workers=2)
assert [one["n"] for one in bushel.MapDataset.source(bushel.open("numbers"))] == [*range(1_000)]
assert main(["top", "--once"]) == 1
print("done")
"""


@slow
def test_workers_and_written_files(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(_TAKEN_AWAY)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "program.py").write_text(_PROGRAM)
    paths = [str(tmp_path / "first"), *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings = {"PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, **surroundings},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr
    assert "this system does not have" in done.stdout + done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []
