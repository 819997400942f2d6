"""Datasets within a torch `DataLoader`: every element once, or an error that says how."""

import gc

import pytest

from bushel.errors import PlanError


def _loaded(shares: bool, workers: int) -> list[list[int]]:
    pytest.importorskip("torch")
    from tests.deliver.torch_parts import loaded

    return loaded(shares, workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_one_process_has_all(workers: int) -> None:
    batches = _loaded(False, workers)
    assert [number for batch in batches for number in batch] == list(range(40))


def test_two_workers_with_all_of_it_are_refused() -> None:
    text = ""
    try:
        _loaded(False, 2)
    except PlanError as error:  # Not `raises`, which keeps the frames, and so torch's workers.
        text = str(error)
    gc.collect()  # torch's iterator, which ends its workers, refers to itself.
    assert "every element would come 2 times" in text
    assert ".mp_prefetch(MultiprocessingOptions(num_workers=2))" in text


def test_two_workers_with_a_share_each_have_it_once() -> None:
    batches = _loaded(True, 2)
    assert sorted(number for batch in batches for number in batch) == list(range(40))
