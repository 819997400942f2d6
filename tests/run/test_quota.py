"""The watch over filters that drop nearly everything: by windows of 1,000, however it is cut."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.core.options import DatasetOptions
from bushel.run.quota import DropQuota
from tests.property.profile import tried

WINDOW = 1000
# Runs of elements that are kept, or dropped, in hundreds: so shares are often just the limit.
runs = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=30)


@tried
@given(runs, st.lists(st.integers(1, 700), min_size=1, max_size=9), st.sampled_from([0.5, 0.9, 1]))
def test_raises_where_a_window_ends(
    kept: list[tuple[int, bool]], sizes: list[int], most: float
) -> None:
    keep = np.concatenate([np.full(100 * hundreds, is_kept) for hundreds, is_kept in kept])
    shares = [
        np.mean(~keep[start : start + WINDOW]) for start in range(0, len(keep) - WINDOW + 1, WINDOW)
    ]
    expected = next((n * WINDOW for n, share in enumerate(shares, 1) if share >= most), None)
    options = DatasetOptions(filter_warn_threshold_ratio=None, filter_raise_threshold_ratio=most)
    quota = DropQuota("filter(f)", options)
    start, found, number = 0, None, 0
    while start < len(keep) and found is None:
        part = keep[start : start + sizes[number % len(sizes)]]
        told = quota.count_kept(len(part)) if part.all() else quota.count(part)
        found = None if told is None else start + told[0]
        start, number = start + len(part), number + 1
    assert found == expected


def test_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    quota = DropQuota("filter(f)", DatasetOptions(filter_warn_threshold_ratio=0.9))
    with caplog.at_level(logging.WARNING, "bushel"):
        assert quota.count(np.zeros(3 * WINDOW, dtype=bool)) is None
    assert caplog.text.count("`filter(f)` dropped 100.00% of the last 1000 elements") == 1
