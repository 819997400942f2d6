"""Streams in turn share their threads, however many are open."""

import pytest

import bushel
from bushel.dataset.stream import stream_node
from bushel.deliver.open import open_stream
from bushel.experimental import InterleaveIterDataset
from tests.growth.counting import CountingSource, threads

OPTIONS = bushel.ReadOptions(num_threads=2, prefetch_buffer_size=8)


def guarded(number: int) -> bushel.IterDataset[int]:
    """A stream that is read by itself, since bad records are counted."""
    source = CountingSource(1000)
    guarded = bushel.MapDataset.source(source).on_error("skip")
    return guarded.to_iter_dataset(OPTIONS).map(lambda x: 1000 * number + x)


@pytest.mark.parametrize("parts", [16, 256])
def test_threads_do_not_grow_with_the_streams(parts: int) -> None:
    dataset = InterleaveIterDataset(list(map(guarded, range(parts))), cycle_length=parts)
    before = threads()
    stream = open_stream(stream_node(dataset))
    try:
        stream.start()
        # As many as four streams would have.
        assert before < threads() <= before + 4 * OPTIONS.num_threads
        chunk = stream.pull(1)
        assert chunk is not None and chunk.block.rows()[0] == 0
        assert threads() <= before + 4 * OPTIONS.num_threads
    finally:
        stream.close()
    assert threads() == before
