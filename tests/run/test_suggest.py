"""Suggested options: within the budget, within the limits, and never beyond Grain's."""

import os
from collections.abc import Callable
from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from bushel.core.options import MultiprocessingOptions, ReadOptions
from bushel.experimental import AutotuneParameter, WindowShuffleIterDataset
from bushel.grain.suggest import PerformanceConfig, pick_performance_config
from tests.property.profile import tried

MEGABYTE = 1 << 20
NO_LIMITS = {"ram_budget_mb": None, "max_workers": None, "max_buffer_size": None}


def stream(lib: Any, size: int, count: int = 20) -> Any:
    return lib.MapDataset.source([np.zeros(size, np.uint8)] * count).to_iter_dataset()


def figures(config: Any) -> tuple[int, int]:
    """The number of workers, and the number of records to read ahead."""
    return (
        config.multiprocessing_options.num_workers,
        config.read_options.prefetch_buffer_size,
    )


@tried
@given(
    size=st.integers(1, 3 * MEGABYTE),
    ram_budget_mb=st.integers(0, 40),
    max_workers=st.integers(0, 50),
    max_buffer_size=st.integers(0, 100),
)
def test_a_suggestion_fits_into_the_budget(size: int, **limits: Any) -> None:
    config = pick_performance_config(stream(bushel, size), **limits)
    workers, buffered = figures(config)
    assert (workers + buffered) * size <= limits["ram_budget_mb"] * MEGABYTE
    # Workers as in Grain. Records beside them: Grain spends the budget on those once more.
    their_workers, their_buffered = figures(
        grain.experimental.pick_performance_config(stream(grain, size), **limits)
    )
    assert workers == their_workers
    assert buffered <= their_buffered
    # And none of it wasted.
    more = (workers + buffered + 1) * size > limits["ram_budget_mb"] * MEGABYTE
    assert more or buffered == limits["max_buffer_size"]
    threads = config.read_options.num_threads  # type: ignore[union-attr]
    assert threads == min(16, buffered)


def _mixed(lib: Any) -> Any:
    return lib.IterDataset.mix([stream(lib, MEGABYTE), stream(lib, 3 * MEGABYTE)])


def _grown(lib: Any) -> Any:
    return stream(lib, MEGABYTE // 10).map(lambda x: np.zeros(MEGABYTE, np.uint8))


def _batched(lib: Any) -> Any:
    return stream(lib, MEGABYTE // 10, 100).batch(10)


def _nested(lib: Any) -> Any:
    record = {"a": np.zeros(MEGABYTE // 8), "b": {"c": np.zeros(MEGABYTE, np.uint8)}}
    return lib.MapDataset.source([record] * 9).to_iter_dataset()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (_mixed, (55, 0)),  # 1, 3, 1, 3, 1: 1.8 MB on average.
        (_grown, (100, 0)),
        (_batched, (100, 0)),
        (_nested, (50, 0)),
    ],
)
def test_elements_are_looked_at(make: Callable[[Any], Any], expected: tuple[int, int]) -> None:
    limits = {"ram_budget_mb": 100, "max_workers": 500, "max_buffer_size": 700}
    assert figures(pick_performance_config(make(bushel), **limits)) == expected
    theirs = grain.experimental.pick_performance_config(make(grain), **limits)
    assert figures(theirs)[0] == expected[0]


def test_records_are_looked_at_where_they_are_read() -> None:
    limits = {"ram_budget_mb": 100, "max_workers": 2, "max_buffer_size": 900}
    # Two elements of 1.8 MB, and records of 1 and 3 MB beside them.
    assert figures(pick_performance_config(_mixed(bushel), **limits)) == (2, 24)
    # Two elements of 1 MB, and records of a tenth of that.
    assert figures(pick_performance_config(_grown(bushel), **limits)) == (2, 900)
    shuffled = WindowShuffleIterDataset(_grown(bushel), window_size=3, seed=0)
    assert figures(pick_performance_config(shuffled, **limits)) == (2, 900)
    # A dataset that is not read as a stream yet is what would be read.
    rows = bushel.MapDataset.source([np.zeros(MEGABYTE, np.uint8)] * 9)
    assert figures(pick_performance_config(rows, **limits)) == (2, 98)


def test_limits_that_are_not_set() -> None:
    ds = stream(bushel, MEGABYTE)
    assert figures(pick_performance_config(ds, **NO_LIMITS)) == (os.cpu_count(), 500)
    assert figures(pick_performance_config(ds, **NO_LIMITS | {"max_workers": 3})) == (3, 500)
    assert figures(
        pick_performance_config(ds, **NO_LIMITS | {"ram_budget_mb": 10.5, "max_workers": 3})
    ) == (3, 7)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bushel.MapDataset.source([]),
        lambda: bushel.MapDataset.source([1, 2]).filter(lambda x: False),
        lambda: bushel.MapDataset.source([1, 2]),
        lambda: bushel.MapDataset.source([np.zeros(0)] * 5),
    ],
)
def test_where_nothing_takes_memory_the_limits_are_all_there_is(make: Callable[[], Any]) -> None:
    limits = {"ram_budget_mb": 1, "max_workers": 5, "max_buffer_size": 70}
    assert figures(pick_performance_config(make().to_iter_dataset(), **limits)) == (5, 70)


def test_only_so_many_elements_are_made() -> None:
    made = []
    ds = bushel.MapDataset.range(1000).map(lambda x: made.append(x) or np.zeros(x + 1, np.uint8))
    limits = {"ram_budget_mb": 1, "max_workers": 10**6, "max_buffer_size": 10**6}
    config = pick_performance_config(ds, **limits, samples_to_check=3)
    assert made == [0, 1, 2] * 2
    assert figures(config) == (MEGABYTE // 2, 0)  # Sizes 1, 2 and 3.


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"ram_budget_mb": -1}, ValueError, "`ram_budget_mb` must not be negative, and is -1"),
        ({"max_workers": -1}, ValueError, "`max_workers` must not be negative, and is -1"),
        ({"max_buffer_size": -3}, ValueError, "`max_buffer_size` must not be negative, and is -3"),
        ({"ram_budget_mb": "a"}, TypeError, "`ram_budget_mb` must be a number or None, and is 'a'"),
        ({"max_workers": 1.5}, TypeError, "`max_workers` must be a number or None, and is 1.5"),
        ({"samples_to_check": 0}, ValueError, "`samples_to_check` must be at least 1, and is 0"),
        ({"samples_to_check": None}, TypeError, "`samples_to_check` must be an integer, and is No"),
        ({"ds": [1, 2]}, TypeError, r"takes a dataset, and got a list: \[1, 2\]"),
    ],
)
def test_arguments_are_checked(change: dict[str, Any], kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        pick_performance_config(**{"ds": stream(bushel, 1), **NO_LIMITS, **change})


def test_the_suggestion_is_a_pair_of_options() -> None:
    assert PerformanceConfig() == PerformanceConfig(None, None)
    config = pick_performance_config(stream(bushel, 10), **NO_LIMITS | {"max_workers": 2})
    assert config == PerformanceConfig(MultiprocessingOptions(num_workers=2), ReadOptions(16, 500))


def test_a_suggestion_that_is_tuned_has_the_same_bounds() -> None:
    limits = {"ram_budget_mb": 100, "max_workers": 3, "max_buffer_size": 50}
    fixed = pick_performance_config(_grown(bushel), **limits)
    tuned = pick_performance_config(_grown(bushel), tune=True, **limits)
    options = tuned.multiprocessing_options
    assert options is not None and fixed.multiprocessing_options is not None
    assert options.num_workers == AutotuneParameter(1, fixed.multiprocessing_options.num_workers)  # type: ignore[arg-type]
    assert options.ram_budget_mb == 100
    assert tuned.read_options == fixed.read_options
    none = pick_performance_config(_grown(bushel), tune=True, **limits | {"ram_budget_mb": 0})
    assert figures(none) == (0, 0)
    stream = _grown(bushel).mp_prefetch(options)
    assert [len(one) for one in stream] == [MEGABYTE] * 20
