"""torch on several ranks: saved by four, gone on with by two, the same records at each step.

It starts itself as the ranks of a job on this machine; elsewhere `torchrun` does.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import bushel

BATCH_SIZE, LANES, SAVED_AT, STEPS = 16, 8, 5, 9


def record(i):
    return {"id": np.int64(i), "x": np.array([i, 1], np.float32) / 1_000}


def batches(**hosts):
    """Of all ranks together. How many records a filter leaves, nobody can count beforehand."""
    ds = bushel.MapDataset.range(1_000).seed(1).shuffle().repeat().map(record)
    return ds.lanes(LANES, **hosts).filter(lambda row: row["id"] % 3 > 0).batch(BATCH_SIZE)


def train(folder, until):
    """What every rank runs: DistributedDataParallel, and a checkpoint of model and data."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    store = f"file://{folder}/store-{os.environ['WORLD_SIZE']}"
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = bushel.torch.loader(batches(), steps_per_epoch=100)
    path, step = Path(folder, "checkpoint.pt"), 0
    if path.exists():
        saved = torch.load(path)
        step = saved["step"]
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["data"])
    for batch in loader:
        optimizer.zero_grad()
        (model(batch["x"]) ** 2).mean().backward()  # averages the gradients of all ranks
        optimizer.step()
        print(f"{step} {rank}", *batch["id"].tolist(), flush=True)
        step += 1
        if step == until:
            break
    data = bushel.torch.gather_state(loader)  # of all ranks, for any number of them
    if not rank:
        torch.save({"step": step, "model": model.state_dict(), "data": data}, path)
    torch.distributed.barrier()
    loader.close()
    torch.distributed.destroy_process_group()


def run(ranks, folder, until):
    """Starts a job, and returns the records of each step."""
    environment = os.environ | {"WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *sys.argv, "--rank", folder, str(until)]
    started = [
        subprocess.Popen(
            command, env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(ranks)
    ]
    lines = [line.split() for process in started for line in process.communicate()[0].splitlines()]
    assert not any(process.returncode for process in started)
    steps: dict[int, list[int]] = {}
    for step, _, *ids in sorted(lines, key=lambda line: (int(line[0]), int(line[1]))):
        steps.setdefault(int(step), []).extend(map(int, ids))
    print(f"{ranks} ranks made steps {min(steps)} to {max(steps)}")
    return steps


def main():
    if "--rank" in sys.argv:
        return train(sys.argv[-2], int(sys.argv[-1]))
    with tempfile.TemporaryDirectory() as folder:
        steps = run(4, folder, SAVED_AT) | run(2, folder, STEPS)
    alone = iter(batches(shard_options=bushel.sharding.NoSharding()))
    for step in range(STEPS):
        assert steps[step] == next(alone)["id"].tolist()
    print(f"The records of all {STEPS} steps are those of one process that never stopped.")


if __name__ == "__main__":
    main()
