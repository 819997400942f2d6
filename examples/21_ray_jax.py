"""Ray's JaxTrainer: begun by two workers, gone on with by four, the same records at each step.

Each of them is a process of one JAX job, and has a worker of its own on the cluster that makes its
batches. It starts a cluster on this machine, without accelerators; with `RAY_ADDRESS` it runs on
that one, if all nodes see `folder`.
"""

import json
import os
import tempfile
from pathlib import Path

import numpy as np

import bushel

BATCH_SIZE, LANES, SAVED_AT, STEPS = 16, 8, 5, 9


def record(i):
    return {"id": np.int32(i), "x": np.array([i, 1], np.float32) / 1_000}


def batches(**hosts):
    """Of all workers together. How many records a filter leaves, nobody can count beforehand."""
    ds = bushel.MapDataset.range(1_000).seed(1).shuffle().repeat(5).map(record)
    return ds.lanes(LANES, **hosts).filter(lambda row: row["id"] % 3 > 0).batch(BATCH_SIZE)


def train(config):
    """What every worker of Ray Train runs; JaxTrainer has made one JAX job of them."""
    import jax
    import orbax.checkpoint as ocp
    import ray.train

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("hosts",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("hosts"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    @jax.jit
    def learned(model, batch):
        gradient = jax.grad(lambda weights: ((batch["x"] @ weights) ** 2).mean())
        return {"weights": model["weights"] - 0.1 * gradient(model["weights"])}

    # Each worker makes its own rows; the arrays are those of the whole batch.
    remote = batches().ray_prefetch(bushel.RayOptions(num_workers=1))
    data = iter(bushel.experimental.device_put(remote, rows))
    model = {"weights": jax.device_put(np.ones(2, np.float32), everywhere)}
    folder = Path(config["folder"])
    with data, ocp.CheckpointManager(folder / "saved") as manager:
        step = manager.latest_step() or 0
        if step:
            kept = ocp.args.Composite(
                model=ocp.args.StandardRestore(model),
                data=bushel.checkpoint.CheckpointRestore(data),
            )
            model = manager.restore(step, args=kept)["model"]
        while step < config["until"]:
            batch = next(data)
            model = learned(model, batch)  # of the rows of all workers
            for part in batch["id"].addressable_shards:
                name = f"{step}-{part.index[0].start or 0:02}"
                (folder / name).write_text(json.dumps(np.asarray(part.data).tolist()))
            step += 1
        kept = ocp.args.Composite(
            model=ocp.args.StandardSave(model), data=bushel.checkpoint.CheckpointSave(data)
        )
        manager.save(step, args=kept)
    if ray.train.get_context().get_world_rank() == 0:
        told = {"step": step, "weights": np.asarray(model["weights"]).tolist()}
        (folder / "told").write_text(json.dumps(told))


def run(workers, folder, until):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.jax import JaxConfig, JaxTrainer

    trainer = JaxTrainer(
        train,
        train_loop_config={"folder": folder, "until": until},
        # Without it, or `use_tpu`, they are no job; on which platform, `JAX_PLATFORMS` says.
        jax_config=JaxConfig(use_gpu=True),
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(name=f"{workers}", storage_path=folder),
    )
    trainer.fit()
    told = json.loads(Path(folder, "told").read_text())
    print(f"{workers} workers trained up to step {told['step']}: weights {told['weights']}")


def main():
    import ray

    if "RAY_ADDRESS" in os.environ:
        ray.init(log_to_driver=False)
    else:
        cpu = {"JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
        here = {"address": "local", "num_cpus": 8, "include_dashboard": False}
        ray.init(**here, log_to_driver=False, runtime_env={"env_vars": cpu})
    with tempfile.TemporaryDirectory() as folder:
        run(2, folder, SAVED_AT)
        run(4, folder, STEPS)
        alone = iter(batches(shard_options=bushel.sharding.NoSharding()))
        for step in range(STEPS):
            parts = sorted(Path(folder).glob(f"{step}-*"))
            assert len(parts) == (2 if step < SAVED_AT else 4)
            ids = [record for part in parts for record in json.loads(part.read_text())]
            assert ids == next(alone)["id"].tolist()
    print(f"The records of all {STEPS} steps are those of one process that never stopped.")
    ray.shutdown()


if __name__ == "__main__":
    main()
