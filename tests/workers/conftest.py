"""Every test with workers is guarded, and starts its own: how they start is what it is about."""

import pytest

from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]


@pytest.fixture
def one_nursery() -> None:
    """Leaves the start of workers as it is."""
