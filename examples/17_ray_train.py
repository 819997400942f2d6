"""Ray Train: begun by two workers, gone on with by four, the same records at each step.

Each of them trains, and has a worker of its own on the cluster that makes its batches. It starts
a cluster on this machine; with `RAY_ADDRESS` it runs on that one, if all nodes see `folder`.
"""

import json
import os
import tempfile
from pathlib import Path

import numpy as np

import bushel

BATCH_SIZE, LANES, SAVED_AT, STEPS = 16, 8, 5, 9


def record(i):
    return {"id": np.int64(i), "x": np.array([i, 1], np.float32) / 1_000}


def batches(**hosts):
    """Of all workers together. How many records a filter leaves, nobody can count beforehand."""
    ds = bushel.MapDataset.range(1_000).seed(1).shuffle().repeat(5).map(record)
    return ds.lanes(LANES, **hosts).filter(lambda row: row["id"] % 3 > 0).batch(BATCH_SIZE)


def train(config):
    """What every worker of Ray Train runs; which one it is, `lanes` and the loader find out."""
    import ray.train
    import torch
    from ray.train.torch import prepare_model

    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = batches().ray_prefetch(bushel.RayOptions(num_workers=1))
    loader = bushel.torch.loader(data, steps_per_epoch=100)
    rank, step = ray.train.get_context().get_world_rank(), 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, "saved.pt"))
        step = saved["step"]
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["data"])
    for batch in loader:
        optimizer.zero_grad()
        (model(batch["x"]) ** 2).mean().backward()  # averages the gradients of all workers
        optimizer.step()
        Path(config["folder"], f"{step}-{rank}").write_text(json.dumps(batch["id"].tolist()))
        step += 1
        if step == config["until"]:
            break
    state = bushel.torch.gather_state(loader)  # of all workers, for any number of them
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if not rank:
            saved = {"step": step, "model": model.state_dict(), "data": state}
            torch.save(saved, Path(folder, "saved.pt"))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"step": step}, checkpoint=checkpoint)
    loader.close()


def run(workers, folder, until):
    """A run of Ray Train; one of the same name goes on where the last one was saved."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    trainer = TorchTrainer(
        train,
        train_loop_config={"folder": folder, "until": until},
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
        torch_config=TorchConfig(backend="gloo"),
        run_config=RunConfig(name="example", storage_path=folder),
    )
    result = trainer.fit()
    print(f"{workers} workers trained up to step {result.metrics['step']}")


def main():
    import ray

    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=False)
    else:
        ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        run(2, folder, SAVED_AT)
        run(4, folder, STEPS)
        alone = iter(batches(shard_options=bushel.sharding.NoSharding()))
        for step in range(STEPS):
            workers = 2 if step < SAVED_AT else 4
            parts = [json.loads(Path(folder, f"{step}-{i}").read_text()) for i in range(workers)]
            assert [record for part in parts for record in part] == next(alone)["id"].tolist()
    print(f"The records of all {STEPS} steps are those of one process that never stopped.")
    ray.shutdown()


if __name__ == "__main__":
    main()
