"""A mixture that ended ends there again, though with other weights there would be more of it."""

from typing import Any

import pytest

from bushel import IterDataset, MapDataset
from bushel.experimental import WindowShuffleIterDataset
from tests.streams.compare import states_of
from tests.streams.test_mixing_changed import STEPS, Step, listed, mixture


def _windows_of_packed(ds: IterDataset[Any]) -> IterDataset[Any]:
    """The last windows but one have rows of the last group of the packer."""
    packed: Any = ds.pack({"x": 8}, bins=3)
    return listed(WindowShuffleIterDataset(packed, window_size=4, seed=1), "x")


@pytest.mark.parametrize(
    ("step", "last"),
    [
        pytest.param(STEPS["pack"], 1, id="pack"),
        pytest.param(STEPS["filter, pack"], 1, id="filter, pack"),
        pytest.param(STEPS["shuffle"], 1, id="shuffle"),
        pytest.param(STEPS["window shuffle"], 1, id="window shuffle"),
        pytest.param(_windows_of_packed, 5, id="windows of packed rows"),
    ],
)
def test_the_last_group_ends_where_it_did(step: Step, last: int) -> None:
    ds, other = (step(mixture(weights, "stop")) for weights in ([1, 1], [5, 1]))
    whole, states = list(ds), states_of(ds)
    for done in range(len(whole) - last, len(whole)):
        iterator = iter(other)
        iterator.set_state(states[done])
        assert list(iterator) == whole[done:]


def test_a_group_that_ends_with_the_last_one_of_the_step_before() -> None:
    def windows(weights: list[int]) -> Any:
        parts = [MapDataset.range(6), MapDataset.range(100, 120)]
        mixed = IterDataset.mix([part.to_iter_dataset() for part in parts], weights)
        short = WindowShuffleIterDataset(mixed, window_size=5, seed=1)
        # Full, so this step does not know that there are no more.
        return WindowShuffleIterDataset(short, window_size=12, seed=2)

    ds, whole = windows([1, 1]), list(windows([1, 1]))
    assert len(whole) == 12
    for done in range(1, 12):
        iterator = iter(windows([1, 30]))
        iterator.set_state(states_of(ds)[done])
        assert list(iterator) == whole[done:]
