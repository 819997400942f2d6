"""Block sizes and the choice of threads learn from times; these tests hand them in."""

from itertools import pairwise

import numpy as np
import pytest

from bushel.run.tune import MOST_BYTES, MOST_ELEMENTS, TARGET_SECONDS, BlockSize, ThreadChoice


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
    assert _settle(size, 1e-3)[-1] == 4
    _settle(size, 1e-6)
    size.limit_to(1000)
    assert size.size == 4096
    size.limit_to(100_000)
    assert size.size == 41


def _drive(
    choice: ThreadChoice,
    inline: float,
    threaded: float,
    work: float,
    cpu: float,
    deliveries: int = 400,
) -> list[bool]:
    """Feeds deliveries that take so long in either mode; returns the modes they came in."""
    modes = []
    for _ in range(deliveries):
        modes.append(choice.threaded)
        if choice.undecided:
            choice.learn_work(work, cpu)
        choice.learn_cycle(1, threaded if choice.threaded else inline)
    return modes


def test_cheap_work_stays_inline() -> None:
    choice = ThreadChoice(16, cores=2)
    # A training step of 10 ms, for which a batch of 0.1 ms is made: nothing to gain.
    modes = _drive(choice, inline=0.01, threaded=0.01, work=0.0001, cpu=0.0001)
    assert not any(modes)


def test_waiting_work_goes_to_threads() -> None:
    choice = ThreadChoice(16, cores=2)
    modes = _drive(choice, inline=0.01, threaded=0.001, work=0.009, cpu=0.0001, deliveries=150)
    assert not modes[0]
    assert all(modes[100:])
    assert choice.threads == 16


def test_computing_work_gets_as_many_threads_as_cores() -> None:
    choice = ThreadChoice(16, cores=2)
    _drive(choice, inline=0.01, threaded=0.005, work=0.009, cpu=0.009, deliveries=150)
    assert choice.threaded
    assert choice.threads == 2


def test_work_that_waits_half_of_the_time_gets_twice_as_many() -> None:
    choice = ThreadChoice(16, cores=2)
    _drive(choice, inline=0.01, threaded=0.005, work=0.01, cpu=0.005, deliveries=150)
    assert choice.threads == 4


def test_python_work_returns_inline() -> None:
    choice = ThreadChoice(16, cores=2)
    modes = _drive(choice, inline=0.01, threaded=0.011, work=0.01, cpu=0.01, deliveries=150)
    assert any(modes)
    assert not any(modes[100:])


def test_a_little_faster_is_not_worth_it() -> None:
    choice = ThreadChoice(16, cores=2)
    modes = _drive(choice, inline=0.01, threaded=0.0095, work=0.01, cpu=0.01, deliveries=150)
    assert any(modes)
    assert not any(modes[100:])


def test_a_hopeless_trial_is_given_up_soon() -> None:
    choice = ThreadChoice(16, cores=2)
    modes = _drive(choice, inline=0.01, threaded=0.1, work=0.01, cpu=0.01, deliveries=150)
    assert 0 < sum(modes) < 8


def test_looks_again_when_things_change() -> None:
    choice = ThreadChoice(16, cores=2)
    assert not any(_drive(choice, inline=0.01, threaded=0.01, work=0.0001, cpu=0.0001))
    modes = _drive(choice, inline=0.02, threaded=0.002, work=0.019, cpu=0.0001, deliveries=3000)
    assert modes[-1]
    modes = _drive(choice, inline=0.001, threaded=0.01, work=0.001, cpu=0.001, deliveries=30_000)
    assert not modes[-1]


def test_looks_again_less_and_less_often() -> None:
    choice = ThreadChoice(16, cores=2)
    modes = _drive(choice, inline=0.01, threaded=0.02, work=0.01, cpu=0.01, deliveries=200_000)
    first, second = sum(modes[:20_000]), sum(modes[100_000:])
    assert 0 < second < first


def test_one_slow_delivery_changes_nothing() -> None:
    choice = ThreadChoice(16, cores=2)
    for number in range(200):
        choice.learn_work(0.009, 0.0001)
        # A compilation in the user's loop, once in a while.
        slow = 30.0 if number % 20 == 3 else 0.0
        choice.learn_cycle(1, slow + (0.001 if choice.threaded else 0.01))
    assert choice.threaded


def test_without_threads_there_is_no_choice() -> None:
    choice = ThreadChoice(0, cores=2)
    assert not any(_drive(choice, inline=1.0, threaded=0.01, work=1.0, cpu=0.0))
    assert not choice.undecided
    assert not choice.may_use_threads
