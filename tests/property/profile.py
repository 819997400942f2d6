"""How often a property is tried."""

from hypothesis import HealthCheck, settings

from tests.thorough import THOROUGH, examples

# Deterministic unless more is asked for, so that only a change can turn a test red.
tried = settings(
    derandomize=not THOROUGH,
    database=None,
    deadline=None,
    max_examples=examples(20),
    # The fixture that looks for threads is meant to look once, after all of the examples.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
