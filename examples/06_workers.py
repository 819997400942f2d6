"""Work in other processes: one stream, whatever their number, and whatever happens to them."""

import hashlib
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

import bushel as grain

# What bushel has to say about its workers goes to the log named "bushel".
logging.basicConfig(stream=sys.stdout, format="  %(name)s: %(message)s")

# There is no `if __name__ == "__main__"`: workers do not run this file again. What the
# pipeline needs of it is sent to them, lambdas and local functions included.


def collatz(number):
    """Counts steps, in plain Python: threads would only take turns at this."""
    steps, number = 0, number + 10**50
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


def pipeline(workers, folder):
    def leave_a_note(index, count):  # runs in each worker, before its first element
        Path(folder, str(index)).write_text(str(os.getpid()))

    return (
        grain.MapDataset.range(3_000)
        .seed(5)
        .shuffle()
        .random_map(lambda n, rng: {"n": n, "steps": collatz(n), "noise": rng.normal()})
        .to_iter_dataset()
        .filter(lambda element: element["steps"] % 3 != 0)  # so far done by the workers
        .batch(32)  # which elements make a batch depends on the filter: done here, in order
        .mp_prefetch(grain.MultiprocessingOptions(num_workers=workers), leave_a_note)
    )


def hash_of(batches, after_batch=lambda number: None):
    digest = hashlib.sha256()
    for number, batch in enumerate(batches):
        for name in sorted(batch):
            digest.update(batch[name].tobytes())
        after_batch(number)
    return digest.hexdigest()[:16]


with tempfile.TemporaryDirectory() as folder:
    print("The same stream, made by")
    hashes = []
    for workers in (0, 1, 2):
        hashes.append(hash_of(pipeline(workers, folder)))
        print(f"  {workers} workers: {hashes[-1]}")

    def kill_one(number):
        if number == 30:
            os.kill(int(Path(folder, "0").read_text()), signal.SIGKILL)

    print("\nOnce more with 2 workers, one of which is killed half-way:")
    with iter(pipeline(2, folder)) as batches:  # leaving the block ends the workers
        hashes.append(hash_of(batches, kill_one))
    print(f"  2 workers: {hashes[-1]}")

print("\nOne stream." if len(set(hashes)) == 1 else "\nDIFFERENT STREAMS")
sys.exit(len(set(hashes)) != 1)
