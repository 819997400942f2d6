"""Tests with several hosts wait for each other, and some have workers: both are guarded."""

from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]
