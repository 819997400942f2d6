"""A short run of `make soak`: some rounds of one seed."""

from tests.soak import Soak
from tests.thorough import THOROUGH
from tests.workers.processes import linux


@linux
def test_some_rounds() -> None:
    soak = Soak(seed=0)
    for _ in range(3 if THOROUGH else 1):
        soak.round()
    assert soak.tried["elements compared"]
