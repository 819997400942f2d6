"""Elements that are too large to be made several at a time: one by one, without a pull for each."""

from typing import Any

import numpy as np
import pytest

import bushel
from bushel.core.options import DatasetOptions, ReadOptions
from bushel.run.positional import PositionalStream
from bushel.run.quota import DropQuota

COUNT = 300
BYTES = 300_000
INLINE = ReadOptions(num_threads=0)


def large(number: int) -> Any:
    return np.full(BYTES, number, np.int16)


def odd(array: Any) -> bool:
    return bool(array[0] % 2)


class Large:
    """An element that knows how many others there are."""

    nbytes = 10 * BYTES
    alive = 0

    def __init__(self) -> None:
        Large.alive += 1

    def __del__(self) -> None:
        Large.alive -= 1


def counted(number: int) -> tuple[Large, int]:
    others = Large.alive
    return Large(), others


def test_there_is_no_pull_for_each() -> None:
    node = bushel.MapDataset.range(COUNT).map(large)._own_node()
    quota = DropQuota("test", DatasetOptions())
    # By this clock nothing takes any time.
    stream = PositionalStream(node, INLINE, False, quota, clock=lambda: 0.0)
    for number in range(4):
        assert stream.on_demand() is None
        chunk = stream.pull(1)
        assert chunk is not None and int(chunk.block.rows()[0][0]) == number
    made = stream.on_demand()
    assert made is not None
    assert [int(row[0]) for row in made.rows] == list(range(4, 4 + 256))
    marks = made.take_marks()
    assert [marks.at(used)["next_index"] for used in (0, 1, 256)] == [4, 5, 260]
    # Where several are asked for, they are small again.
    chunk = stream.pull(3)
    assert chunk is not None and [int(row[0]) for row in chunk.block.rows()] == [260, 261, 262]
    assert stream.on_demand() is None


def test_the_memory_of_one_serves_the_next() -> None:
    elements = iter(bushel.MapDataset.range(COUNT).map(counted).to_iter_dataset(INLINE))
    others = [next(elements)[1] for _ in range(COUNT)]
    assert sum(others[20:]) == 0


@pytest.mark.parametrize("filtered", [False, True])
def test_states_between_them(filtered: bool) -> None:
    dataset = bushel.MapDataset.range(COUNT).map(large)
    if filtered:
        dataset = dataset.filter(odd)
    stream = dataset.to_iter_dataset(INLINE)
    elements, states, numbers = iter(stream), [], []
    for element in elements:
        numbers.append(int(element[0]))
        states.append(elements.get_state())
    assert numbers == [n for n in range(COUNT) if n % 2 or not filtered]
    assert states[-1] != states[-2]
    for used in (1, 5, 37, 70, len(numbers) - 1):
        again = iter(stream)
        again.set_state(states[used - 1])
        assert int(next(again)[0]) == numbers[used]
        # And back, from the middle of those that are made one by one.
        elements.set_state(states[used - 1])
        assert [int(next(elements)[0]) for _ in range(min(30, len(numbers) - used))] == (
            numbers[used : used + 30]
        )
        assert elements.get_state() == states[min(used + 30, len(numbers)) - 1]


def test_one_that_fails() -> None:
    def fragile(number: int) -> Any:
        if number % 50 == 49:
            raise KeyError(number)
        return large(number)

    elements = iter(bushel.MapDataset.range(COUNT).map(fragile).to_iter_dataset(INLINE))
    numbers: list[int] = []
    failures: list[int] = []
    while True:
        try:
            numbers.append(int(next(elements)[0]))
        except KeyError as error:
            failures.append(error.args[0])
            assert elements.get_state()["next_index"] == failures[-1] + 1
        except StopIteration:
            break
    assert failures == list(range(49, COUNT, 50))
    assert numbers == [number for number in range(COUNT) if number not in failures]


def test_between_small_ones() -> None:
    def grows(number: int) -> Any:
        return large(number) if 1000 <= number < 1500 else np.full(4, number, np.int16)

    elements = iter(bushel.MapDataset.range(3000).map(grows).to_iter_dataset(INLINE))
    assert [int(element[0]) for element in elements] == list(range(3000))
