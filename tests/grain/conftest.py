"""The profile of the tests against Grain.

It is deterministic, so that a change in bushel is the only thing that can turn a test red.
`BUSHEL_EXAMPLES=5000 pytest tests/grain` looks deeper, and elsewhere each time.
"""

from hypothesis import HealthCheck, Phase, settings

from tests.thorough import THOROUGH

settings.register_profile(
    "grain",
    derandomize=not THOROUGH,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
