"""What is collected outside of `tests`, and how every test begins, those of the pages as well."""

import sys
from pathlib import Path
from time import perf_counter_ns

import pytest

from tests.thorough import THOROUGH

# Pages that start or import a framework, which takes five seconds each: for `make test-all` alone.
# The same calls are tested in tests/frameworks and tests/sources.
_COMING_FROM = Path(__file__).parent / "docs/coming-from"
_WITH_FRAMEWORKS = [] if THOROUGH else [_COMING_FROM / "tf-data.md", _COMING_FROM / "torch.md"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves these pages out. (`testpaths` names each page, so `collect_ignore` is not heeded.)"""
    left_out = [item for item in items if item.path in _WITH_FRAMEWORKS]
    if left_out:
        items[:] = [item for item in items if item.path not in _WITH_FRAMEWORKS]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def as_a_program_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has figures of iterators cost what they do in a program that has made none before.

    One that has made hundreds that ended soon, as tests do, publishes less of the next ones.
    """
    timed, steps = (
        sys.modules.get(f"bushel.{name}") for name in ("deliver.timed", "run.step_times")
    )
    if timed is not None:
        from bushel.deliver.live_page import LastFigures

        monkeypatch.setattr(timed, "LAST_FIGURES", LastFigures())
    if steps is not None:
        from bushel.run.timing_budget import LooksBeside

        monkeypatch.setattr(steps, "looks_beside", LooksBeside(perf_counter_ns()))
