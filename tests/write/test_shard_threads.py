"""Whether threads make the elements of a shard: found out once, not in every shard."""

from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel.write import write_job
from bushel.write.shard import WriteShard, threads_may_pay


@pytest.mark.parametrize(
    ("cores", "on_core", "seconds", "pays"),
    [
        (1.0, 2.0, 2.0, False),
        (1.0, 0.1, 2.0, True),
        (0.5, 1.0, 1.1, False),
        (2.0, 2.0, 2.0, True),
        (float("inf"), 2.0, 2.0, True),
        (1.0, 0.0, 0.0, False),
    ],
)
def test_threads_pay_on_one_core_where_elements_wait(
    cores: float, on_core: float, seconds: float, pays: bool
) -> None:
    assert threads_may_pay(cores, on_core, seconds) is pays


@pytest.mark.parametrize(("shards", "asked"), [(8, True), (7, False)])
def test_the_first_elements_tell_where_there_are_many_shards(
    shards: int, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong guess is mended after a shard, so there have to be some for each worker."""
    looked: list[tuple[float, float, float]] = []
    given: list[bool] = []

    class Watched(WriteShard):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            given.append(arguments[-1])

    def pays(*told: float) -> bool:
        looked.append(told)  # type: ignore[arg-type]
        return False

    monkeypatch.setattr(write_job, "WriteShard", Watched)
    monkeypatch.setattr(write_job, "threads_may_pay", pays)
    # (As many shards at a time as there are workers, each with an equal part of the cores.)
    monkeypatch.setattr(write_job, "by_workers", lambda task, numbers, _: map(task, numbers))
    monkeypatch.setattr(write_job, "available_cores", lambda: 2)
    written = bushel.MapDataset.range(100).write(tmp_path / "a-*.arrayrecord", shards=shards)
    assert written.records == 100
    assert given == [not asked]
    for cores, on_core, seconds in looked:
        assert cores == 1.0 and on_core >= 0 and 0 < seconds < float("inf")
    assert bool(looked) is asked
