"""The statistics of an iterator as plain values; `watch/` formats them."""

from bushel.core.frozen import frozen
from bushel.run.step_total import StepTotal
from bushel.run.worker_figures import WorkerFigures


@frozen
class Figures:
    """What an iterator has handed out, what was waited for, and what the steps did."""

    elements: int
    elapsed_seconds: float
    wait_seconds: float
    refills: int
    ready_refills: int
    longest_wait_seconds: float
    longest_wait_at: int
    # None where the steps are not counted.
    steps: tuple[StepTotal, ...] | None = None
    # What was chosen about threads, for each stream that may have some.
    threads: tuple[str, ...] = ()
    workers: tuple[WorkerFigures, ...] = ()
    # Blocks and tasks that are made and wait to be taken.
    ready_blocks: int = 0
    # Records that were passed over, where a step does that.
    bad_records: int = 0
    # Parts of mixtures that are evaluated together, so that nobody can tell their steps apart.
    parts_together: int = 0
    # How long the first element was waited for.
    first_wait_seconds: float = 0.0
