"""What is collected outside of `tests`, and how every test begins, those of the pages as well."""

import sys
from time import perf_counter_ns

import pytest

from tests.thorough import THOROUGH

# Pages that import a framework are for `make test-all` alone.
collect_ignore = [] if THOROUGH else ["docs/coming-from/tf-data.md", "docs/coming-from/torch.md"]


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
        from bushel.run.looks_beside import LooksBeside

        monkeypatch.setattr(steps, "looks_beside", LooksBeside(perf_counter_ns()))
