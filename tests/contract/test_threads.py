"""Threads never show: the same elements, errors and states, however many there are."""

import pytest

from bushel import ReadOptions
from bushel.experimental import ThreadPrefetchIterDataset
from tests.contract.events import events_of, run_events
from tests.contract.pipelines import PIPELINES, Kit, stream_of

READ = {
    "inline": ReadOptions(0, 0),
    "one thread": ReadOptions(1, 1),
    "two threads": ReadOptions(2, 4),
    "default": ReadOptions(16, 500),
}
BROKEN = {"whole": (), "broken": (4, 5, 9)}
every_pipeline = pytest.mark.parametrize("name", PIPELINES)
every_source = pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())


@every_source
@every_pipeline
def test_the_same_with_any_threads(name: str, broken: tuple[int, ...]) -> None:
    expected = run_events(stream_of(name, Kit(broken=broken)))
    for how, read in READ.items():
        # (Inline, without a thread that is ahead, is what is expected.)
        for threaded in (True,) if how == "inline" else (False, True):
            ds = stream_of(name, Kit(broken=broken, read=read))
            assert run_events(ds, threaded) == expected, (how, threaded)


@every_source
@every_pipeline
def test_the_same_behind_a_prefetching_thread(name: str, broken: tuple[int, ...]) -> None:
    expected = run_events(stream_of(name, Kit(broken=broken)))
    for size in (1, 5, 64):
        ds = ThreadPrefetchIterDataset(
            stream_of(name, Kit(broken=broken)), prefetch_buffer_size=size
        )
        assert run_events(ds) == expected


@every_pipeline
def test_a_state_from_threads_resumes_inline_and_back(name: str) -> None:
    inline, threaded = Kit(), Kit(read=ReadOptions(2, 8))
    expected = run_events(stream_of(name, inline))
    half = len(expected) // 2
    with iter(stream_of(name, threaded)) as first:
        first.start_prefetch()
        for _ in range(half):
            next(first)
        state = first.get_state()
    with iter(stream_of(name, inline)) as second:
        second.set_state(state)
        assert events_of(second) == expected[half:]
        second.set_state(state)
        state = second.get_state()
    with iter(stream_of(name, threaded)) as third:
        third.set_state(state)
        third.start_prefetch()
        assert events_of(third) == expected[half:]
