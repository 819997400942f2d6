"""What Orbax leaves to the garbage collector does not come up in the tests of others."""

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def garbage_of_orbax() -> Iterator[None]:
    """Collects it: what was never awaited says so when it dies, and a warning is an error.

    After each file of tests, not after each test: with JAX loaded it takes a tenth of a second.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
