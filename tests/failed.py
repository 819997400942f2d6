"""Which tests have failed: what they had is kept by the traceback, and nobody need wait for it."""

import pytest

_FAILED = pytest.StashKey[bool]()


def note_failure(item: pytest.Item, report: pytest.TestReport) -> None:
    """Takes note of a test's report."""
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True


def has_failed(request: pytest.FixtureRequest) -> bool:
    """Whether the test has failed already, for a fixture that looks at what it left."""
    node: pytest.Item = request.node
    return node.stash.get(_FAILED, False)
