"""A program that runs torch jobs of several ranks on this machine, and prints what they tell.

Ranks are forked, so that torch is imported once and not once for each. What they print is theirs;
the last line is JSON.
"""

import datetime
import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import bushel
from bushel import IterDataset, MapDataset
from bushel.errors import AgreementError, PlanError

PATIENCE = datetime.timedelta(seconds=300)


def run(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Runs a function as the ranks of a job, and returns what each returned."""
    store = dist.TCPStore("localhost", 0, is_master=True, timeout=PATIENCE, wait_for_workers=False)
    children = []
    for rank in range(count):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(reading)
                own = dist.TCPStore("localhost", store.port, is_master=False, timeout=PATIENCE)
                dist.init_process_group("gloo", store=own, rank=rank, world_size=count)
                result = function(*arguments)
                dist.barrier()
                dist.destroy_process_group()
                with os.fdopen(writing, "wb") as pipe:
                    pickle.dump(result, pipe)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writing)
        children.append((child, reading))
    results = []
    for child, reading in children:
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read()
        assert os.waitpid(child, 0)[1] == 0
        results.append(pickle.loads(told))
    return results


def batches(**hosts: Any) -> Any:
    """Finite, filtered and mixed data: how many steps there are takes looking, and agreeing."""

    def part(first: int, count: int) -> Any:
        ds = MapDataset.range(first, first + count).shuffle(seed=first)
        return ds.lanes(8, **hosts).filter(lambda number: number % 3 != 0)

    mixed = IterDataset.mix([part(0, 200), part(1000, 100)], weights=[2, 1])
    mixed = mixed.map(lambda number: {"id": np.int64(number), "x": np.full(2, number, np.float32)})
    return mixed.batch(16)


def train(state: Any, steps: int | None) -> Any:
    """Trains a model under DDP; returns the records of each step, the state, and the weights."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loader = bushel.torch.loader(batches())
    if state is not None:
        model.load_state_dict(state["model"])
        loader.load_state_dict(state["data"])
    seen = []
    for batch in loader:
        model(batch["x"]).mean().backward()
        optimizer.step()
        seen.append(batch["id"].tolist())
        if len(seen) == steps:
            break
    data = bushel.torch.gather_state(loader)
    model_state = {name: value.clone() for name, value in model.state_dict().items()}
    loader.close()
    return {"seen": seen, "state": {"model": model_state, "data": data}}


def whole_or_refused() -> Any:
    ds = MapDataset.range(12).batch(4)
    told = []
    try:
        list(bushel.torch.loader(ds))
    except PlanError as error:
        told.append(str(error))
    told.append([batch.tolist() for batch in bushel.torch.loader(ds, whole=True)])
    rank, count = dist.get_rank(), dist.get_world_size()
    share = MapDataset.range(12)[rank::count].batch(3)
    return [*told, [batch.tolist() for batch in bushel.torch.loader(share)]]


def one_leaves() -> str:
    """Rank 1 closes its iterator, and rank 0, which asks for more, is told so."""
    iterator = iter(batches())
    next(iterator)
    if dist.get_rank() == 1:
        iterator.close()
        return "closed"
    try:
        for _ in iterator:
            pass
    except AgreementError as error:
        return str(error)
    return "came to the end"


def whole_or_refused_and_one_leaves() -> Any:
    """Both in one job, as it takes long to start one."""
    return whole_or_refused(), one_leaves()


def main() -> None:
    torch.optim.SGD(torch.nn.Linear(1, 1).parameters())  # Imports much: once, and here.
    # One process that never stopped.
    alone = batches(shard_options=bushel.sharding.NoSharding())
    expected = [batch["id"].tolist() for batch in alone]
    first = run(4, train, None, 4)
    second = run(2, train, first[0]["state"], None)
    refused, left = zip(*run(2, whole_or_refused_and_one_leaves), strict=True)
    told = {
        "expected": expected,
        "four": [rank["seen"] for rank in first],
        "two": [rank["seen"] for rank in second],
        "weights": [rank["state"]["model"]["module.weight"].tolist() for rank in second],
        "refused": refused,
        "left": left,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    sys.exit(main())
