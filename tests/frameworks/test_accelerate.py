"""Jobs of Hugging Face Accelerate: each process has its share, on its device, and goes on."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from bushel import MapDataset
from tests.frameworks.programs import ranks, run
from tests.thorough import slow

PROGRAM = "tests.frameworks.accelerate_ranks"


@slow
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs accelerate")
def test_a_job_of_two_goes_on_with_one(tmp_path: Path) -> None:
    first = ranks(2, "-m", PROGRAM, str(tmp_path), "9")
    then = run("-m", PROGRAM, str(tmp_path), "5")
    shares = zip(first[0]["seen"], first[1]["seen"], strict=True)
    steps = [[*one, *other] for one, other in shares] + then["seen"]
    ds = MapDataset.range(60).seed(1).shuffle().repeat().map(np.int64).lanes(4).batch(8)
    alone = iter(ds)
    assert steps == [next(alone).tolist() for _ in range(14)]
    # The main process may read something alone; the others have no reason to.
    assert first[0]["unprepared"] == then["unprepared"] == "8 batches"
    assert "this is process 1 of the 2 of an Accelerate job" in first[1]["unprepared"]
    assert "bushel.torch.loader(ds, whole=True)" in first[1]["unprepared"]
    for rank in first:
        assert rank["whole"] == [8, 8] and rank["share"] == 4 and rank["device"] == "meta cpu"
