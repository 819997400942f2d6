"""One job on many hosts: saved by four processes, gone on with by two, the same records.

It starts itself several times, as the processes of a JAX job on this machine. On a cluster each
host runs one, and `jax.distributed.initialize()` finds the others by itself.
"""

import os
import socket
import subprocess
import sys
import tempfile

import numpy as np

import bushel as grain

# Lanes are part of the pipeline: a multiple of every number of hosts that it may ever run on.
LANES, BATCH_SIZE, SAVED_AT, STEPS = 8, 16, 5, 9


def corpus(first_id, count):
    """Stands for documents of different lengths."""
    dataset = grain.MapDataset.range(first_id, first_id + count).seed(first_id).shuffle().repeat()
    return dataset.map(lambda i: {"id": np.int32(i), "length": np.int32(i * 7919 % 100)})


def batches(**hosts):
    """Filters and mixtures cannot be split by counting; in lanes they need not be."""
    long = corpus(0, 1_000).lanes(LANES, **hosts).filter(lambda text: text["length"] > 30)
    all_of = corpus(5_000, 300).lanes(LANES, **hosts)
    mixed = grain.IterDataset.mix([long, all_of], weights=[3, 1])
    mixed = grain.experimental.WindowShuffleIterDataset(mixed, window_size=20, seed=1)
    return mixed.batch(BATCH_SIZE)  # of all hosts together


def train(coordinator, processes, until, folder, process):
    """What every process of the job runs."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import orbax.checkpoint as ocp
    from jax.experimental import multihost_utils

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, int(processes), int(process))
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("hosts",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("hosts"))
    mean_length = jax.jit(lambda batch: batch["length"].mean())  # over all hosts

    # Each process makes its own rows; the arrays are those of the whole batch.
    data = iter(grain.experimental.device_put(batches(), rows))
    with data, ocp.CheckpointManager(folder) as manager:
        step = manager.latest_step() or 0
        if step:
            manager.restore(step, args=grain.checkpoint.CheckpointRestore(data))
        while step < int(until):
            batch = next(data)
            length = float(mean_length(batch))
            ids = multihost_utils.process_allgather(batch["id"], tiled=True)
            mine = sum(len(part.data) for part in batch["id"].addressable_shards)
            print(f"  step {step}: {mine} rows here, mean length {length:.1f}, records", *ids)
            step += 1
        manager.save(step, args=grain.checkpoint.CheckpointSave(data))


def run_job(processes, until, folder):
    """Starts the processes, and returns what the first of them prints."""
    with socket.socket() as place:  # stays bound, so that nobody else gets the port
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind(("localhost", 0))
        coordinator = f"localhost:{place.getsockname()[1]}"
        command = [sys.executable, *sys.argv, "--job", coordinator, str(processes), str(until)]
        started = [
            subprocess.Popen([*command, folder, str(number)], stdout=subprocess.PIPE, text=True)
            for number in range(processes)
        ]
        outputs = [process.communicate()[0] for process in started]
    assert not any(process.returncode for process in started)
    lines = [line for line in outputs[0].splitlines() if line.startswith("  step")]
    print(f"{processes} processes, of which the first says", *lines, sep="\n")
    return lines


def main():
    if "--job" in sys.argv:
        return train(*sys.argv[-5:])
    with tempfile.TemporaryDirectory() as folder:
        lines = run_job(4, SAVED_AT, folder) + run_job(2, STEPS, folder)
    assert len(lines) == STEPS
    # One process that was never stopped, and needs no JAX.
    expected = iter(batches(shard_options=grain.sharding.NoSharding()))
    for line in lines:
        assert line.split("records ")[1].split() == list(map(str, next(expected)["id"]))
    print(f"\nThe records of all {len(lines)} steps are those of one process that never stopped.")


if __name__ == "__main__":
    main()
