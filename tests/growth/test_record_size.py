"""Records of 10 bytes and of 30 MB: what is large travels once, by shared memory."""

from typing import Any

import numpy as np
import pytest

import bushel
from bushel.transport import channel

# Beside the record: its kind, its shape, and where it lies.
ENVELOPE = 4_096
SMALL = 1 << 13


def record(size: int) -> Any:
    def make(x: int) -> Any:
        return np.full(size, x % 251, np.uint8)

    return make


@pytest.mark.parametrize("size", [10, 1_000, 100_000, 3_000_000, 30_000_000])
def test_a_message_does_not_grow_with_the_record(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    elements = 4 if size > 1_000_000 else 40
    received = 0
    receive = channel.receive_files

    def counted(*arguments: Any) -> Any:
        nonlocal received
        data, files = receive(*arguments)
        received += len(data)
        return data, files

    monkeypatch.setattr(channel, "receive_files", counted)
    dataset = bushel.MapDataset.range(elements).map(record(size)).to_iter_dataset()
    options = bushel.MultiprocessingOptions(num_workers=1)
    count = 0
    with iter(dataset.mp_prefetch(options)) as stream:
        for number, array in enumerate(stream):
            assert array.shape == (size,) and array[0] == array[-1] == number % 251
            count += 1
    assert count == elements
    assert received <= elements * (min(size, SMALL) + ENVELOPE)


@pytest.mark.parametrize("size", [1_000_000, 30_000_000])
def test_a_large_record_is_not_copied_on_arrival(size: int) -> None:
    dataset = bushel.MapDataset.range(3).map(record(size)).to_iter_dataset()
    options = bushel.MultiprocessingOptions(num_workers=1)
    with iter(dataset.mp_prefetch(options)) as stream:
        for array in stream:
            base = array
            while isinstance(base, np.ndarray) and base.base is not None:
                base = base.base
            # At the bottom is the memory that both processes map, and no array of our own.
            assert not (isinstance(base, np.ndarray) and base.flags.owndata)


def test_blocks_of_large_records_are_of_one() -> None:
    """What is read ahead is bounded in bytes: nobody holds a hundred records of 30 MB."""
    asked: list[int] = []

    class Large:
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, key: int) -> Any:
            return self.__getitems__([key])[0]

        def __getitems__(self, keys: Any) -> list[Any]:
            asked.append(len(keys))
            # Memory that nobody has touched takes none.
            return [np.empty(30_000_000, np.uint8) for _ in keys]

    options = bushel.ReadOptions(num_threads=0)
    stream = iter(bushel.MapDataset.source(Large()).to_iter_dataset(options))
    for _ in range(40):
        next(stream)
    # By time they would grow fourfold each: nothing takes less time than these.
    assert max(asked[4:]) == 1
