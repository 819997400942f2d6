"""What a state has of a mixture: a few numbers and the name of each part, and no more."""

import json
from typing import Any

import pytest

import bushel

MOST_BYTES_A_PART = 130


def parts(count: int) -> list[Any]:
    ranges = [bushel.MapDataset.range(i * 1000, (i + 1) * 1000) for i in range(count)]
    return [part.shuffle(seed=i) for i, part in enumerate(ranges)]


def mix(count: int) -> Any:
    return bushel.MapDataset.mix(parts(count)).to_iter_dataset()


def mix_streams(count: int) -> Any:
    return bushel.IterDataset.mix([part.to_iter_dataset() for part in parts(count)])


def concatenate(count: int) -> Any:
    return bushel.MapDataset.concatenate(parts(count)).shuffle(seed=1).to_iter_dataset()


def interleave(count: int) -> Any:
    streams = [part.to_iter_dataset() for part in parts(count)]
    return bushel.experimental.InterleaveIterDataset(streams, cycle_length=count)


def zipped(count: int) -> Any:
    return bushel.experimental.ZipMapDataset(parts(count)).to_iter_dataset()


@pytest.mark.parametrize("make", [mix, mix_streams, concatenate, interleave, zipped])
def test_a_state_grows_by_a_line_for_each_part(make: Any) -> None:
    def state_bytes(count: int) -> int:
        stream = iter(make(count).batch(4))
        next(stream)
        next(stream)
        return len(json.dumps(stream.get_state()))

    assert state_bytes(204) - state_bytes(4) <= 200 * MOST_BYTES_A_PART
