"""How often a property is tried."""

import os

from hypothesis import HealthCheck, settings

# Deterministic unless more is asked for, so that only a change can turn a test red.
tried = settings(
    derandomize="BUSHEL_EXAMPLES" not in os.environ,
    database=None,
    deadline=None,
    max_examples=int(os.environ.get("BUSHEL_EXAMPLES", "40")),
    # The fixture that looks for threads is meant to look once, after all of the examples.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
