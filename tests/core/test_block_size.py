"""Block sizes learn from times; these tests hand them in."""

from itertools import pairwise

import numpy as np
import pytest

from bushel.core.block_size import FEW, MOST_BYTES, MOST_ELEMENTS, TARGET_SECONDS, BlockSize


def _settle(size: BlockSize, seconds_each: float, blocks: int = 40) -> list[int]:
    sizes = []
    for _ in range(blocks):
        sizes.append(size.size)
        size.learn(size.size, size.size * seconds_each)
    return sizes


@pytest.mark.parametrize("seconds_each", [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0])
def test_blocks_take_a_few_milliseconds(seconds_each: float) -> None:
    size = BlockSize()
    _settle(size, seconds_each)
    ideal = min(MOST_ELEMENTS, max(1, TARGET_SECONDS / seconds_each))
    assert 0.5 * ideal <= size.size <= ideal * 1.001


def test_starts_small_and_grows_fourfold_at_most() -> None:
    sizes = _settle(BlockSize(), 1e-7)
    assert sizes[0] == 1
    assert all(after <= 4 * before for before, after in pairwise(sizes))
    assert sizes[-1] == MOST_ELEMENTS


def test_follows_records_that_become_slow() -> None:
    size = BlockSize()
    _settle(size, 1e-6)
    large = size.size
    _settle(size, 1e-2, blocks=12)
    assert size.size < large / 1000


def test_keeps_to_its_limits() -> None:
    size = BlockSize(most=10, first=50)
    assert size.size == 10
    assert max(_settle(size, 1e-7)) == 10
    assert BlockSize(most=0).size == 1


def test_large_elements_make_small_blocks() -> None:
    size = BlockSize()
    _settle(size, 1e-7)
    size.limit_bytes({"image": np.zeros(MOST_BYTES // 4, np.uint8), "label": 3})
    assert size.size == 3
    _settle(size, 1e-7)
    assert size.size == 3
    size.limit_bytes(np.zeros(10 * MOST_BYTES, np.uint8))
    assert size.size == 1


def test_a_few_elements_come_together_up_to_a_size() -> None:
    """What a block costs is shared by a few batches, and those of megabytes come alone."""
    sizes = []
    for bytes_each in (16_000, 32_768, 131_200, 262_144, 524_800, 1_000_000, 3_000_000):
        size = BlockSize(few=FEW)
        size.limit_to(bytes_each)
        _settle(size, 1e-7)
        sizes.append(size.size)
    assert sizes == [16, 8, 8, 8, 3, 2, 1]


def test_elements_may_be_anything() -> None:
    class Odd:
        def nbytes(self) -> int:
            return 3

    for element in (Odd(), np.int64, None, {}, "text", object()):
        size = BlockSize()
        size.limit_bytes(element)
        assert size.size == 1


def test_a_block_of_nothing_teaches_nothing() -> None:
    size = BlockSize()
    size.learn(0, 100.0)
    assert size.size == 1


def test_a_source_that_wants_many_at_a_time_gets_them() -> None:
    size = BlockSize(most=31, least=4096)
    assert size.size == 1
    assert _settle(size, 1e-5)[-1] == 4096
    # Unless that takes too long, or is too much memory.
    assert _settle(size, 1e-3)[-1] == 16
    _settle(size, 1e-6)
    size.limit_to(1000)
    assert size.size == 4096
    size.limit_to(100_000)
    assert size.size == 41


def test_costly_elements_may_be_more_memory_together() -> None:
    """Pictures of 150 kB that take a millisecond each: eleven of them, not one."""
    size = BlockSize()
    for _ in range(20):
        size.learn(size.size, size.size * 1e-3)
        size.limit_to(150_000)
    assert size.size == 11
    # While those that only need to be copied are one, as their memory says.
    _settle(size, 1e-5)
    assert size.size == 1
    # And there is an end to it.
    size.limit_to(12 << 20)
    _settle(size, 1e-3)
    assert size.size == 1


@pytest.mark.parametrize("bytes_each", [1000, 30_000, 150_000, 1_000_000])
def test_a_little_more_work_makes_no_leap(bytes_each: int) -> None:
    """Between what is copied and what is computed there is no threshold to sit on."""
    sizes = []
    for power in np.arange(-7, -2, 0.05):
        size = BlockSize()
        size.limit_to(bytes_each)
        _settle(size, 10**power)
        sizes.append(size.size)
    assert all(
        after <= 1.5 * before + 1 and before <= 1.5 * after + 1 for before, after in pairwise(sizes)
    )
