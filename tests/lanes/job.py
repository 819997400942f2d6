"""Processes of JAX jobs on this machine: a program that is told on its input what to run.

    {"name": "train", "count": 4, "log": "first", "port": 1234, "folder": "..."}

runs a job of 4 processes, and answers with their exit codes. When one fails, the others are
killed: they would wait for it. What each has to say is in `first-0.jsonl` and so on, and what
it prints in `first-0.txt`.

Processes are forked, so that JAX and Orbax are imported once and not once for each.
"""

import atexit
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bushel.checkpoint import CheckpointRestore, CheckpointSave
from bushel.errors import AgreementError
from bushel.experimental import ThreadPrefetchIterDataset, device_put
from bushel.multiprocessing import MultiprocessingOptions
from tests.lanes.corpora import finite, mixture
from tests.patience import PATIENCE_SECONDS


class Process:
    """One process of a job, and what it has been told."""

    def __init__(self, job: dict[str, Any], index: int) -> None:
        self.folder = Path(job["folder"])
        self.index, self.count = index, job["count"]
        self.until: int = job.get("until", 0)
        self.dies_at: int | None = job.get("dies_at")
        self._name: str = job["log"]
        self._log = (self.folder / f"{job['log']}-{index}.jsonl").open("w")
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{job['port']}", self.count, index)
        mesh = Mesh(np.array(jax.devices()), ("hosts",))
        self.rows = NamedSharding(mesh, PartitionSpec("hosts"))
        everywhere = NamedSharding(mesh, PartitionSpec())
        self._gather = jax.jit(lambda array: array, out_shardings=everywhere)

    def tell(self, **what: Any) -> None:
        """Writes down what happened; a test reads it."""
        self._log.write(json.dumps(what) + "\n")
        self._log.flush()

    def wait_until_told(self, others: Iterable[int]) -> None:
        """Waits until other processes have written down what happened."""
        for index in others:
            log = self.folder / f"{self._name}-{index}.jsonl"
            while not log.exists() or not log.read_text().endswith("\n"):
                time.sleep(0.01)

    def whole(self, array: Any) -> Any:
        """The values of a global array, which takes all processes."""
        return np.asarray(self._gather(array)).tolist()

    def meet(self, where: str) -> None:
        """Waits until all processes are here."""
        from jax._src import distributed

        distributed.global_state.client.wait_at_barrier(where, int(1000 * PATIENCE_SECONDS))


def train(process: Process) -> None:
    """Takes steps, saves every few of them, and goes on from what was saved."""
    data = iter(device_put(mixture(), process.rows))
    options = ocp.CheckpointManagerOptions(save_interval_steps=3, max_to_keep=2)
    with data, ocp.CheckpointManager(process.folder / "saved", options=options) as manager:
        start = manager.latest_step() or 0
        if start:
            manager.restore(start, args=CheckpointRestore(data))
        process.tell(start=start)
        for step in range(start, process.until):
            batch = next(data)
            mine = np.concatenate([shard.data for shard in batch["id"].addressable_shards])
            process.tell(step=step, ids=process.whole(batch["id"]), mine=mine.tolist())
            manager.save(step + 1, args=CheckpointSave(data))
            if step + 1 == process.dies_at:
                manager.wait_until_finished()
                process.meet("everything is saved")
                if process.index == process.count - 1:
                    os.kill(os.getpid(), signal.SIGKILL)


def end_together(process: Process) -> None:
    """Takes all of what is finite, and goes back in the middle of it."""
    for remainder in ("drop", "pad"):
        for buffered in (False, True):
            ds = finite(remainder)
            # What a thread asks for ahead, the others must agree to.
            data = iter(ThreadPrefetchIterDataset(ds, prefetch_buffer_size=4) if buffered else ds)
            with data:
                first = [_numbers(next(data)) for _ in range(3)]
                state = data.get_state()
                rest = [_numbers(batch) for batch in data]
                data.set_state(state)
                again = [_numbers(batch) for batch in data]
            process.tell(remainder=remainder, steps=first + rest, again=again)


def differ(process: Process) -> None:
    """Takes all of what is finite, step by step with the others, who have other workers."""
    workers = process.index  # None in the first process.
    ds = finite("drop").map(lambda batch: batch)
    data = iter(ds.mp_prefetch(MultiprocessingOptions(num_workers=workers)) if workers else ds)

    def take(steps: int) -> None:
        for _, batch in zip(range(steps), data, strict=False):
            step = jax.make_array_from_process_local_data(process.rows, batch)
            process.tell(step=process.whole(step))

    with data:
        take(2)
        state = data.get_state()
        take(1)
        data.set_state(state)
        take(100)


def leave(process: Process) -> None:
    """Stops at different steps, in different ways."""
    for way in ("closes", "forgets", "goes back"):
        data = iter(finite("drop"))
        next(data)
        if process.index == process.count - 1:
            if way == "closes":
                data.close()
            elif way == "forgets":
                del data
            else:
                data.set_state(data.get_state())
            process.meet(f"one {way}")
            continue
        try:
            process.tell(way=way, steps=len(list(data)))
        except AgreementError as error:
            process.tell(way=way, error=str(error))
        process.meet(f"one {way}")

    # A thread waits for the other processes, and its own does not want it any more.
    data = iter(ThreadPrefetchIterDataset(finite("drop"), prefetch_buffer_size=4))
    if process.index == 0:
        data.start_prefetch()
        data.close()
    process.meet("one closed")
    data.close()
    process.tell(way="closes alone")

    # The end of a program, too, is an end.
    data = iter(finite("drop"))
    next(data)
    _kept.append(data)
    if process.index != process.count - 1:
        try:
            process.tell(way="ends", steps=len(list(data)))
        except AgreementError as error:
            process.tell(way="ends", error=str(error))


def stop(process: Process) -> None:
    """One process stops in the middle, and the others are not to wait for ever."""
    data = iter(finite("drop", agree_timeout_s=3.0))
    next(data)
    process.meet("all have begun")
    if process.index == process.count - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    try:
        process.tell(steps=len(list(data)))
    except AgreementError as error:
        process.tell(error=str(error))
    # With the first that ends, the others are killed.
    process.wait_until_told(range(process.count - 1))
    raise SystemExit("the end of a JAX job would wait for the one that is stopped")


# What a program still refers to when it ends.
_kept: list[Any] = []


def _numbers(batch: Any) -> Any:
    return jax.tree_util.tree_map(np.ndarray.tolist, batch)


PROGRAMS: dict[str, Callable[[Process], None]] = {
    "train": train,
    "end_together": end_together,
    "differ": differ,
    "leave": leave,
    "stop": stop,
}


def _run(job: dict[str, Any], index: int) -> None:
    """What a forked process does."""
    code = 1
    try:
        with (Path(job["folder"]) / f"{job['log']}-{index}.txt").open("w") as text:
            os.dup2(text.fileno(), 1)
            os.dup2(text.fileno(), 2)
        PROGRAMS[job["name"]](Process(job, index))
        atexit._run_exitfuncs()  # As at the end of a program; JAX's processes then wait there.
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _codes_of(job: dict[str, Any]) -> list[int]:
    """Runs a job to its end, which is the first failure of one of its processes."""
    pids: list[int] = []
    codes: dict[int, int] = {}
    try:
        for index in range(job["count"]):
            pid = os.fork()
            if not pid:
                _run(job, index)
            pids.append(pid)
        while len(codes) < len(pids):
            pid, status = os.wait()
            codes[pid] = os.waitstatus_to_exitcode(status)
            if codes[pid]:
                _kill(pid for pid in pids if pid not in codes)
    finally:
        _kill(pid for pid in pids if pid not in codes)
    return [codes[pid] for pid in pids]


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    # JAX warns of what it has started before a fork: nothing, here.
    warnings.filterwarnings("ignore", message=".*fork")
    for line in sys.stdin:
        print(json.dumps(_codes_of(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
