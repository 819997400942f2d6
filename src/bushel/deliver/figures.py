"""`Figures`: the statistics of an iterator as plain values; `watch/stats.py` presents them."""

from bushel.core.frozen import frozen
from bushel.run.step_total import StepTotal
from bushel.run.worker_figures import WorkerFigures


@frozen
class Figures:
    """Delivered elements, waits, and the work of the steps."""

    elements: int
    elapsed_seconds: float
    wait_seconds: float
    refills: int
    ready_refills: int
    longest_wait_seconds: float
    longest_wait_at: int
    # None if the steps are not counted.
    steps: tuple[StepTotal, ...] | None = None
    # The choice of threads, for each stream that may have some.
    threads: tuple[str, ...] = ()
    workers: tuple[WorkerFigures, ...] = ()
    # Finished blocks and tasks that are not taken yet.
    ready_blocks: int = 0
    # Bad records that were skipped or replaced.
    bad_records: int = 0
    # The number of mixture parts that are evaluated together, whose steps are not told apart.
    parts_together: int = 0
    # The wait for the first element.
    first_wait_seconds: float = 0.0
