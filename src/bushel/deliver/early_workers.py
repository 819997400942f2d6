"""Has a nursery started when a dataset is built (`workers/early_nursery.py`); imports meanwhile."""

from bushel.core.options import WorkersKey
from bushel.workers.home import expect_workers


def key_of_workers() -> WorkersKey:
    """Starts the nursery process, and meanwhile imports the modules of an iteration."""
    key = WorkersKey()
    expect_workers(key)
    import bushel.deliver.open
    import bushel.run.build
    import bushel.workers.lowering
    import bushel.workers.pool  # noqa: F401

    return key
