"""What a state has of a mixture: a few numbers for each part, and its description packed."""

import json
from typing import Any

import pytest

import bushel
from bushel.checkpoint.signed import describe_pipeline
from bushel.errors import StateError

MOST_BYTES_A_PART = 50


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


def test_a_long_description_is_compared_as_a_short_one() -> None:
    stream = iter(mix(200))
    next(stream)
    state = json.loads(json.dumps(stream.get_state()))
    again = iter(mix(200))
    again.set_state(state)
    assert next(again) == next(stream)
    changed = parts(200)
    changed[117] = changed[117].shuffle(seed=3)
    other = iter(bushel.MapDataset.mix(changed).to_iter_dataset())
    with pytest.raises(StateError, match=r"`shuffle\(seed=3\)` is new, after step 236"):
        other.set_state(state)
    # As it was saved before it was packed.
    state["bushel"]["pipeline"] = describe_pipeline(mix(200)._node)
    iter(mix(200)).set_state(state)


@pytest.mark.parametrize("text", ["", "!", "AAAA", "eJyryswDAAQzAbE=", "ünï"])
def test_a_damaged_description_is_refused(text: str) -> None:
    stream = iter(mix(4))
    state = stream.get_state()
    state["bushel"]["pipeline"] = text
    with pytest.raises(StateError, match="'bushel' entry of this state is damaged"):
        stream.set_state(state)


def test_a_description_that_would_fill_the_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = iter(mix(200))
    state = stream.get_state()
    monkeypatch.setattr("bushel.checkpoint.packed_lines._MOST_BYTES", 1000)
    with pytest.raises(StateError, match="'bushel' entry of this state is damaged"):
        stream.set_state(state)
