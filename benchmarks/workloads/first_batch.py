"""The wait for the first batch from worker processes, in a trainer that has used JAX already.

Such a trainer has threads, so that a process which is to be relied on is no fork of it but a new
interpreter. That, with numpy, is by hand all that there is to wait for.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

from benchmarks import proof
from benchmarks.workload import MILLISECONDS, Form, Goal, Make, Unit, Workload
from benchmarks.workloads import small_records_workers as small_records

RECORDS = 1024 * small_records.BATCH_SIZE
PROOF_RECORDS = 8 * small_records.BATCH_SIZE


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """Measures from building the loader to its first batch, once in each new process.

    Or, `later`, from iterating over it, when the trainer has compiled its model meanwhile.
    """

    later: bool = False

    @property
    def unit(self) -> Unit:
        return MILLISECONDS

    @property
    def fresh_process(self) -> bool:
        return True

    def prove(self, make: Make) -> proof.Proof:
        use_jax()
        return proof.of(list(make(PROOF_RECORDS)))

    def read(self, make: Make, seconds: float) -> float:
        use_jax()
        small_records.source(RECORDS)  # made beforehand, as data on a disk would be
        start = perf_counter()
        loader = make(RECORDS)
        if self.later:
            compile_step()
            start = perf_counter()
        iterator = iter(loader)
        next(iterator)
        spent = perf_counter() - start
        proof.close(iterator)
        return spent * 1000


def use_jax() -> None:
    """Computes something, so that JAX's threads are there when workers start."""
    import jax.numpy as jnp

    (jnp.ones((256, 256)) @ jnp.ones((256, 256))).block_until_ready()


def compile_step() -> None:
    """Does what takes a trainer seconds before its first step, in a few tenths of one."""
    import jax
    import jax.numpy as jnp

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return x.sum()

    weights = [jnp.ones((64, 64))] * 16
    gradients = jax.jit(jax.grad(loss))(weights, jnp.ones((8, 64)))
    gradients[0].block_until_ready()


def by_hand(n: int) -> Iterator[small_records.Columns]:
    """Starts a new interpreter with numpy, and does the work here when it is there."""
    subprocess.run([sys.executable, "-c", "import numpy"], check=True)
    yield from small_records.by_hand(n)


GOALS = (Goal(1, "torch"), Goal(4, "grain"))
FORMS = (
    Form("DataLoader", small_records.loader, GOALS, grain_agrees="total"),
    Form("MapDataset", small_records.dataset, GOALS, grain_agrees="total"),
)
WORKLOAD = Workload(
    name="first_batch",
    title="first batch, 2 workers, JAX in use",
    gauge=FirstBatch(),
    hand=by_hand,
    torch=small_records.with_torch,
    forms=FORMS,
)
LATER = Workload(
    name="first_batch_later",
    title="the same from iterating on, built before the model",
    gauge=FirstBatch(later=True),
    torch=small_records.with_torch,
    forms=FORMS,
)
