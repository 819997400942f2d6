"""The bytes of what each step makes, here and in workers."""

import json
import sys
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset, ReadOptions
from bushel.run.call_sizes import bytes_of_one
from bushel.run.step_times import StepTimes
from tests.watch.counted import counted
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import with_workers

__all__ = ["no_endless_wait", "no_process_left_behind"]

INLINE = ReadOptions(0, 0)


def is_there(image: Any) -> bool:
    return image is not None


@pytest.mark.parametrize("count", [None, 1])
def test_what_steps_make_is_measured(count: int | None, monkeypatch: Any) -> None:
    monkeypatch.setattr(StepTimes, "most_share", 1.0)  # Every turn is timed.

    def pixels(number: int) -> Any:
        return np.zeros((4, 4), np.uint8)

    def larger(image: Any) -> dict[str, Any]:
        return {"image": image.astype(np.float32), "name": b"x" * 36}

    stream = MapDataset.range(4000).map(pixels).filter(is_there).map(larger).to_iter_dataset(INLINE)
    stream = stream.filter(bool)
    stats = counted(stream if count is None else with_workers(stream, count))
    measured = {step.name: step.bytes_per_record for step in stats.steps or ()}
    bytes_alone = sys.getsizeof(b"x" * 36)
    assert measured["map(pixels)"] == measured["filter(is_there)"] == 16
    assert measured["map(larger)"] == measured["filter(bool)"] == 64 + bytes_alone
    assert measured["range(0, 4000, 1)"] > 0
    batches = MapDataset.range(4000).map(pixels).batch(2).to_iter_dataset(INLINE)
    told = counted(batches if count is None else with_workers(batches, count))
    assert {step.name: step.bytes_per_record for step in told.steps or ()}["batch(2)"] == 32
    assert "32 bytes" in str(told) and "32 bytes" in told._repr_html_()
    again = [dict(step) for step in json.loads(json.dumps(told.to_dict()))["steps"]]
    assert {step["bytes_per_record"] for step in again} >= {16, 32}


def test_what_cannot_be_measured_is_left_out(monkeypatch: Any) -> None:
    monkeypatch.setattr(StepTimes, "most_share", 1.0)
    stats = counted(MapDataset.range(1).map(abs))
    assert [step.bytes_per_record for step in stats.steps or ()] == [-1.0] * len(stats.steps or ())
    lists = MapDataset.range(900).map(lambda number: [number] * 10).to_iter_dataset(INLINE)
    (made,) = {
        step.bytes_per_record for step in counted(lists).steps or () if "range" not in step.name
    }
    assert made >= 10 * sys.getsizeof(1000)


class Boundless:
    """Tells more bytes than there are."""

    nbytes = 1 << 70


def test_a_size_that_cannot_be_ends_no_task_of_a_worker(monkeypatch: Any) -> None:
    monkeypatch.setattr(StepTimes, "most_share", 1.0)
    boundless = MapDataset.range(4000).map(lambda number: Boundless())
    stats = counted(with_workers(boundless.to_iter_dataset(INLINE), 1))
    assert stats.elements == 4000
    assert max(step.bytes_per_record for step in stats.steps or ()) == 1 << 40


def test_results_of_calls() -> None:
    four = np.zeros(4, np.uint8)
    assert bytes_of_one([four, None]) == bytes_of_one((four,)) == bytes_of_one(([four], None)) == 4
    # Nothing was made; or positions, and no element.
    assert bytes_of_one([]) is bytes_of_one(None) is bytes_of_one((four, four)) is None
