"""Accelerate: each process has its share of a batch, on its device; `save_state` has all of it.

Run alone, or `accelerate launch --cpu --num_processes 2 19_accelerate.py`.
"""

import shutil
import tempfile
from pathlib import Path

import accelerate
import numpy as np
import torch

import bushel


def record(i):
    return {"id": np.int64(i), "x": np.array([i, 1], np.float32) / 1_000}


def batches(**hosts):
    ds = bushel.MapDataset.range(1_000).seed(1).shuffle().repeat().map(record)
    # 64 lanes: for any number of processes that divides 64; `batch` is that of all together.
    return ds.lanes(64, **hosts).filter(lambda row: row["id"] % 3 > 0).batch(64)


def train(folder, until):
    accelerator = accelerate.Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = bushel.torch.loader(batches(), steps_per_epoch=100)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    # One state for all processes, from which any number of them can go on.
    accelerator.register_for_checkpointing(bushel.torch.all_ranks(loader))
    if folder.exists():
        accelerator.load_state(folder)
    seen = []
    for batch in loader:
        assert batch["x"].device.type == accelerator.device.type
        optimizer.zero_grad()
        accelerator.backward((model(batch["x"]) ** 2).mean())
        optimizer.step()
        seen.append(accelerator.gather(batch["id"]).tolist())
        if len(seen) == until:
            break
    accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    loader.close()
    return seen


def main():
    # (Processes agree on a folder; yours is on a disk that all of them see.)
    name = [tempfile.mkdtemp()]
    processes = accelerate.PartialState(cpu=True)
    accelerate.utils.broadcast_object_list(name)
    folder = Path(name[0], "checkpoint")
    seen = train(folder, 5) + train(folder, 4)
    if processes.is_main_process:
        alone = iter(batches(shard_options=bushel.sharding.NoSharding()))
        assert seen == [next(alone)["id"].tolist() for _ in range(9)]
        shutil.rmtree(name[0])
    processes.print(f"{processes.num_processes} process(es): the 9 steps of one that never stopped")


if __name__ == "__main__":
    main()
