"""Libraries that import Grain: with bushel in its place they have the same batches."""

import importlib.util

import pytest

from tests.frameworks.programs import run
from tests.thorough import slow


@slow
@pytest.mark.parametrize("library", ["kauldron", "maxtext", "tunix"])
def test_bushel_in_the_place_of_grain(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    program = f"tests.frameworks.grain_users.{library}_run"
    cpu = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    theirs = run("-m", program, "grain", "0", **cpu)
    assert theirs.pop("grain") == "grain" and theirs["count"] >= 12
    for workers in ("0", "2"):
        ours = run("-m", program, "bushel", workers, **cpu)
        assert ours.pop("grain") == "bushel"
        assert ours == theirs and ours.get("resumed", True)
