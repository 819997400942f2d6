"""Lightning: a training goes on in the middle of an epoch, through its own checkpoint."""

import importlib.util

import pytest

from tests.frameworks.programs import run
from tests.thorough import slow


@slow
@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="needs lightning")
def test_a_training_goes_on_within_an_epoch() -> None:
    told = run("-m", "tests.frameworks.lightning_fit")
    for name, batches in {"map": 27, "stream": 21}.items():
        assert told[name] == {"batches": batches, "rest": True, "equal": True}, name
