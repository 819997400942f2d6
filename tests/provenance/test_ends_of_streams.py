"""Streams that end or begin again: which steps there are, and in which epoch a record is."""

import bushel
from bushel import MapDataset


def test_no_step_comes_after_the_last_that_is_taken() -> None:
    taken = MapDataset.range(20).to_iter_dataset().take(5)
    assert [seen.step for seen in bushel.when(taken, 3)] == [3]
    assert list(bushel.when(taken, 7)) == []
    assert list(bushel.when(taken.batch(2), 7)) == []


def test_a_stream_that_is_repeated_has_epochs() -> None:
    repeated = MapDataset.range(4).to_iter_dataset().repeat(3)
    for step in range(12):
        records = bushel.where(repeated, step).records
        assert records.keys.tolist() == [step % 4]
        assert records.epochs is not None
        assert records.epochs.tolist() == [step // 4]
