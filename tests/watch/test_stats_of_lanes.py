"""Statistics of lanes: the copies of a step are one line, in the order of the pipeline."""

from typing import Any

import bushel
from bushel import MapDataset
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import with_workers

__all__ = ["no_endless_wait", "no_process_left_behind"]


def kept(number: int) -> bool:
    return number % 3 > 0


def lines(dataset: Any) -> list[tuple[str, str, int, int]]:
    with bushel.iterate(dataset) as iterator:
        for _ in iterator:
            pass
        return [
            (step.name, step.place, step.parts, step.records)
            for step in iterator.stats().steps or ()
            if step.place != "waiting" and "slice" not in step.name
        ]


def test_here() -> None:
    dataset = MapDataset.range(1200).shuffle(seed=1).lanes(4).map(abs).filter(kept).batch(8)
    told = {line[0]: line for line in lines(dataset)}
    names = list(told)
    assert names[:2] == ["batch(8)", "lanes 0 to 3 of 4"]
    assert names[2:4] == ["filter(kept)", "map(abs)"]
    assert names[-1] == "range(0, 1200, 1)" and "shuffle(seed=1)" in names[4:]
    assert told["map(abs)"][1:] == ("here", 4, 1200)
    assert told["filter(kept)"][2:] == (4, 800)


def test_the_same_function_twice_is_two_lines() -> None:
    dataset = MapDataset.range(400).lanes(2).map(abs).filter(kept).map(abs).batch(4)
    told = [line[0] for line in lines(dataset) if line[0] in ("map(abs)", "filter(kept)")]
    assert told == ["map(abs)", "filter(kept)", "map(abs)"]


def test_in_workers() -> None:
    dataset = MapDataset.range(1200).lanes(4).map(abs).filter(kept).batch(8)
    told = lines(with_workers(dataset, 2))
    assert [line[0] for line in told] == [
        "batch(8)",
        "lanes 0 to 3 of 4",
        "filter(kept)",
        "map(abs)",
        "range(0, 1200, 1)",
    ]
    assert told[2][1:3] == ("workers", 4) and told[3][1:] == ("workers", 4, 1200)
