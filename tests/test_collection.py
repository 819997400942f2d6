"""Tests are found without importing what takes seconds, in each process of a run."""

import pytest

from tests.conftest import COLLECTED_WITH


@pytest.mark.parametrize(
    "package", ["keras", "ray", "sklearn", "tensorflow", "torch", "webdataset"]
)
def test_frameworks_are_not_imported(package: str, pytestconfig: pytest.Config) -> None:
    assert package not in pytestconfig.stash[COLLECTED_WITH], "see tests/later.py"
