"""Workers: as many processes as were asked for, a few files each, and no work done twice."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bushel
from tests.growth.counting import children, open_descriptors, threads

ELEMENTS, BATCH = 4_000, 20


def in_workers(count: int, function: Callable[[int], Any] = int) -> Any:
    dataset = bushel.MapDataset.range(ELEMENTS).shuffle(seed=1).map(function).batch(BATCH)
    options = bushel.MultiprocessingOptions(num_workers=count)
    return dataset.to_iter_dataset().mp_prefetch(options)


def note_and_pass(path: str) -> Callable[[int], int]:
    """Makes a function that adds a byte to a file for each call, in whatever process."""

    def function(x: int) -> int:
        with open(path, "ab", buffering=0) as file:
            file.write(b".")
        return x

    return function


@pytest.mark.parametrize("count", [1, 6])
def test_each_element_is_made_once(count: int, tmp_path: Path) -> None:
    path = tmp_path / "calls"
    with iter(in_workers(count, note_and_pass(str(path)))) as stream:
        made = sum(len(batch) for batch in stream)
    assert made == ELEMENTS == path.stat().st_size


def test_processes_files_and_threads_are_in_proportion() -> None:
    before = children(), open_descriptors(), threads()
    for count in (1, 6):
        with iter(in_workers(count)) as stream:
            for _ in range(3 * count):
                next(stream)
            # One more, from which the others come.
            assert len(children() - before[0]) <= count + 1
            assert open_descriptors() - before[1] <= 8 + 6 * count
            assert threads() - before[2] <= 1
            state = json.dumps(stream.get_state())
            assert len(state) < 250
    assert os.getpid() not in children()
