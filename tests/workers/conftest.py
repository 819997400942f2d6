"""Every test with workers is guarded."""

from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]
