"""The jobs of the benchmarks: what can be said of them without running them."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.jobs.convert import FORMATS
from benchmarks.jobs.job import Job
from benchmarks.jobs.jobs import JOBS
from benchmarks.jobs.measure import Outcome, measure
from benchmarks.jobs.report import render, tell
from benchmarks.jobs.user import ROW, ROWS, Packer, mixed


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_entries_are_told_apart_and_have_their_data(job: Job) -> None:
    names = [entry.name for entry in job.entries]
    assert len(set(names)) == len(names)
    assert names[0].startswith("by hand") and job.entries[0].package is None
    assert {"bushel, 0 workers", "bushel, 2 workers"} <= set(names)
    needed = {*job.prepared, *(name for entry in job.entries for name in entry.prepared)}
    assert needed <= set(FORMATS)


def test_the_packer_loses_nothing() -> None:
    rng = np.random.default_rng(0)
    documents = [np.arange(length, dtype=np.int32) for length in rng.integers(1, 40_000, 12)]
    packer = Packer()
    batches = []
    for document in documents:
        for batch in packer.batches(document):
            assert batch.shape == (ROWS, ROW)
            batches.append(batch.ravel())
            # Whoever asks after a batch gets what goes on from there.
            rest = packer.rest()
    assert rest == packer.rest()[: len(rest)]
    joined = np.concatenate([*batches, np.array(packer.rest())])
    assert np.array_equal(joined, np.concatenate(documents))


def test_the_mixture_by_hand_takes_every_document_once_an_epoch() -> None:
    drawn = mixed({"web": 50, "books": 20}, np.random.default_rng(0))
    seen: dict[str, list[int]] = {"web": [], "books": []}
    for _ in range(1000):
        corpus, number = next(drawn)
        seen[corpus].append(number)
    assert sorted(seen["web"][:50]) == list(range(50))
    assert sorted(seen["books"][:20]) == list(range(20))
    assert 0.65 < len(seen["web"]) / 1000 < 0.75


def test_a_reading_is_told_and_kept_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that is cut short has what it had measured."""
    job = JOBS["tokens_8"]
    hand, ours = job.entry("by hand, taken by index"), job.entry("bushel, 0 workers")
    np.arange(32_000_000, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    outcome = Outcome()

    def cut_short(who: str, figures: dict[str, float]) -> None:
        tell(job, who, figures)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(job, [hand, ours], tmp_path, 1, 0.01, outcome, cut_short)
    assert list(outcome.readings) == [hand.name]
    assert "tokens_8 1/1: by hand, taken by index: " in capsys.readouterr().err
    assert render(job, outcome).count("by hand") == 1
    measure(job, [ours], tmp_path, 1, 0.01, outcome, partial(tell, job))
    assert "| bushel, 0 workers" in render(job, outcome)
