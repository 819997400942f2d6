"""The wait for the first batch from worker processes, in a trainer that has used JAX already."""

from dataclasses import dataclass
from time import perf_counter

from benchmarks import proof
from benchmarks.workload import MILLISECONDS, Form, Goal, Make, Unit, Workload
from benchmarks.workloads import small_records_workers as small_records

RECORDS = 1024 * small_records.BATCH_SIZE
PROOF_RECORDS = 8 * small_records.BATCH_SIZE


@dataclass(frozen=True, slots=True)
class FirstBatch:
    """Measures from building the loader to its first batch, once in each new process."""

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
        iterator = iter(make(RECORDS))
        next(iterator)
        spent = perf_counter() - start
        proof.close(iterator)
        return spent * 1000


def use_jax() -> None:
    """Computes something, so that JAX's threads are there when workers start."""
    import jax.numpy as jnp

    (jnp.ones((256, 256)) @ jnp.ones((256, 256))).block_until_ready()


GOALS = (Goal(1, "torch"), Goal(4, "grain"))
WORKLOAD = Workload(
    name="first_batch",
    title="first batch, 2 workers, JAX in use",
    gauge=FirstBatch(),
    torch=small_records.with_torch,
    forms=(
        Form("DataLoader", small_records.loader, GOALS, grain_agrees="total"),
        Form("MapDataset", small_records.dataset, GOALS, grain_agrees="total"),
    ),
)
