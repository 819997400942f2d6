"""Threads never show: the same elements, errors and states, however many there are."""

import itertools

import pytest

from bushel import ReadOptions
from bushel.experimental import ThreadPrefetchIterDataset
from tests.contract.events import events_of, run_events
from tests.contract.pipelines import PIPELINES, Kit, by_turns, stream_of
from tests.thorough import THOROUGH

READ = {
    "inline": ReadOptions(0, 0),
    "one thread": ReadOptions(1, 1),
    "two threads": ReadOptions(2, 4),
    "default": ReadOptions(16, 500),
}
# How many threads, and whether another one is ahead: each by default, with broken records or not.
SOME = {
    False: [("inline", True), ("one thread", False), ("default", True)],
    True: [("one thread", True), ("two threads", False), ("default", False)],
}
BROKEN = {"whole": (), "broken": (4, 5, 9)}
every_pipeline = pytest.mark.parametrize("name", PIPELINES)
every_source = pytest.mark.parametrize(
    ("name", "records"),
    [(name, records) for name in PIPELINES for records in by_turns(name, BROKEN)],
)


@every_source
def test_the_same_with_any_threads(name: str, records: str) -> None:
    broken = BROKEN[records]
    expected = run_events(stream_of(name, Kit(broken=broken)))
    # (Inline, without a thread that is ahead, is what is expected.)
    ways = [way for way in itertools.product(READ, (False, True)) if way != ("inline", False)]
    for how, threaded in ways if THOROUGH else by_turns(name, SOME[bool(broken)]):
        ds = stream_of(name, Kit(broken=broken, read=READ[how]))
        assert run_events(ds, threaded) == expected, (how, threaded)


@every_source
def test_the_same_behind_a_prefetching_thread(name: str, records: str) -> None:
    broken = BROKEN[records]
    expected = run_events(stream_of(name, Kit(broken=broken)))
    # One that is full all the time, one in between, and one that never is.
    for size in (1, 5, 64) if THOROUGH else ((5,) if broken else by_turns(name, (1, 64))):
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
