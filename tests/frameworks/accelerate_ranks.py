"""A program that trains as one process of an Accelerate job, and prints what came of it as JSON."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import torch

import bushel
from bushel import MapDataset
from bushel.errors import PlanError


def rows() -> Any:
    ds = MapDataset.range(60).seed(1).shuffle()
    return ds.map(lambda i: {"id": np.int64(i), "x": np.float32([i, 1]) / 60})


def train(folder: Path, until: int) -> list[list[int]]:
    accelerator = accelerate.Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = bushel.torch.loader(rows().repeat().lanes(4).batch(8), steps_per_epoch=100)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data)
    assert loader is data
    accelerator.register_for_checkpointing(bushel.torch.all_ranks(loader))
    path, seen = folder / "saved", []
    if path.exists():
        accelerator.load_state(path)
    for batch in loader:
        assert batch["x"].device.type == accelerator.device.type
        optimizer.zero_grad()
        accelerator.backward((model(batch["x"]) ** 2).mean())
        optimizer.step()
        seen.append(batch["id"].tolist())
        if len(seen) == until:
            break
    accelerator.save_state(path)
    accelerator.wait_for_everyone()
    loader.close()
    return seen


def unprepared() -> str:
    """What comes back from `prepare` untouched, and is used by all processes."""
    accelerator = accelerate.Accelerator(cpu=True)
    stream = accelerator.prepare(rows().to_iter_dataset().batch(8))
    try:
        return f"{len(list(stream))} batches"
    except PlanError as error:
        return str(error)


def on_its_device() -> str:
    """Where tensors are, if the device of this process is another than that of batches."""
    accelerate.PartialState().device = torch.device("meta")
    batch = next(iter(bushel.torch.loader(rows().lanes(4).batch(8))))
    there = next(iter(bushel.torch.loader(rows().lanes(4).batch(8), device="cpu")))
    return f"{batch['x'].device} {there['x'].device}"


def main() -> None:
    folder, until = Path(sys.argv[1]), int(sys.argv[2])
    whole = bushel.torch.loader(rows().batch(8), whole=True)
    told = {
        "seen": train(folder, until),
        "unprepared": unprepared(),
        "whole": [len(list(whole)), len(list(whole))],
        "share": len(list(rows()[int(os.environ.get("RANK", 0)) :: 2].batch(8))),
        "device": on_its_device(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
