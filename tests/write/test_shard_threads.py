"""Whether threads make the elements of a shard: found out once, not in every shard."""

import pytest

from bushel.write.shard import threads_may_pay


@pytest.mark.parametrize(
    ("cores", "on_core", "seconds", "pays"),
    [
        (1.0, 2.0, 2.0, False),
        (1.0, 0.1, 2.0, True),
        (0.5, 1.0, 1.1, False),
        (2.0, 2.0, 2.0, True),
        (float("inf"), 2.0, 2.0, True),
        (1.0, 0.0, 0.0, False),
    ],
)
def test_threads_pay_on_one_core_where_elements_wait(
    cores: float, on_core: float, seconds: float, pays: bool
) -> None:
    assert threads_may_pay(cores, on_core, seconds) is pays
