"""Pages with the figures of iterators: written, torn, damaged, forked, and gone."""

import gc
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

import bushel
from bushel import MapDataset
from bushel.deliver import timed
from bushel.deliver.live_page import LASTED_SECONDS, NAME, LastFigures, LivePage, read_page
from bushel.errors import ForkedError
from bushel.watch.live_processes import LiveProcess, process
from bushel.watch.published import Published, published_from

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="this system has no files in memory to be found"
)

SLOT_BYTES = 1 << 19


def stats_with(**changes: Any) -> dict[str, Any]:
    with bushel.iterate(MapDataset.range(8).map(abs)) as iterator:
        assert list(iterator) == list(range(8))
        values: dict[str, Any] = iterator.stats().to_dict()
    return {**values, **changes}


def page_with(**changes: Any) -> dict[str, Any]:
    values = {
        "pid": os.getpid(),
        "iterator": 1,
        "monotonic_seconds": 1.0,
        "is_over": False,
        "recent": {"seconds": 1.0, "elements": 1, "wait_seconds": 0.5},
        "stats": stats_with(),
    }
    return {**values, **changes}


@pytest.fixture(autouse=True)
def no_page_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has iterators collected that earlier tests have let go of, and their time forgotten."""
    gc.collect()
    monkeypatch.setattr(timed, "LAST_FIGURES", LastFigures())


@pytest.fixture
def page() -> Iterator[LivePage]:
    made = LivePage()
    yield made
    made.close()


def descriptors() -> list[int]:
    """The pages that this process has open, in the order of their numbers."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if f"memfd:{NAME}" in link:
            found.append(int(name))
    return sorted(found)


def read(descriptor: int) -> Published:
    data = read_page(descriptor)
    assert data is not None
    return published_from(data)


def own() -> LiveProcess:
    return process(os.getpid())


def test_the_page_tells_what_the_iterator_tells() -> None:
    dataset = MapDataset.range(100).shuffle(seed=1).map(abs).batch(10)
    with bushel.iterate(dataset) as iterator:
        for _ in iterator:
            pass
        (seen,) = own().iterators
        told, published = iterator.stats().to_dict(), seen.published.stats.to_dict()
    assert seen.published.is_over and "at its end" in str(seen)
    for name in ("elements", "steps", "threads", "workers"):
        assert published[name] == told[name], name


def test_a_page_is_there_before_the_first_element() -> None:
    seen = []

    def look(number: int) -> int:
        seen.append(own().iterators[0].published)
        return number

    with bushel.iterate(MapDataset.range(1).map(look)) as iterator:
        assert list(iterator) == [0]
    assert seen[0].stats.elements == 0 and not seen[0].is_over


def test_pages_go_with_their_iterators() -> None:
    before = descriptors()
    first, second = (bushel.iterate(MapDataset.range(8)) for _ in range(2))
    assert descriptors() == before
    assert (next(first), next(second), next(second)) == (0, 0, 1)
    one, other = own().iterators
    assert one.published.iterator < other.published.iterator
    first.close()
    first.close()
    assert [seen.published.iterator for seen in own().iterators] == [other.published.iterator]
    del second
    gc.collect()
    assert descriptors() == before
    with pytest.raises(ProcessLookupError, match="no iterator that publishes"):
        own()


def test_a_forked_child_has_no_page_of_its_parent() -> None:
    with bushel.iterate(MapDataset.range(100).batch(1)) as iterator:
        next(iterator)
        data = read_page(descriptors()[-1])
        told, tell = os.pipe()
        end, ended = os.pipe()
        child = os.fork()
        if not child:
            try:
                list(iterator)
            except ForkedError:
                os.write(tell, b"refused")
            os.close(ended)
            os.read(end, 1)
            os._exit(0)
        try:
            os.close(tell)
            assert os.read(told, 100) == b"refused"
            with pytest.raises(ProcessLookupError, match="no iterator that publishes"):
                process(child)
            assert read_page(descriptors()[-1]) == data
        finally:
            os.close(ended)
            os.waitpid(child, 0)
            os.close(told)
            os.close(end)


def test_where_nothing_can_be_published_nothing_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with caplog.at_level("INFO", logger="bushel"), bushel.iterate(MapDataset.range(8)) as iterator:
        assert list(iterator) == list(range(8))
    assert caplog.text.count("cannot look at this iterator") == 1


def test_the_last_that_is_whole_is_read(page: LivePage) -> None:
    descriptor = descriptors()[-1]
    assert read_page(descriptor) is None
    for number in range(1, 6):
        page.write({"number": number})
        newest = read_page(descriptor)
        assert newest is not None and json.loads(newest) == {"number": number}
    # As if the writer had been stopped within a slot: the one before is whole.
    newest_slot = 5 % 2 * SLOT_BYTES
    os.pwrite(descriptor, b"x", newest_slot + 30)
    older = read_page(descriptor)
    assert older is not None and json.loads(older) == {"number": 4}
    os.pwrite(descriptor, b"x" * 40, 4 % 2 * SLOT_BYTES)
    assert read_page(descriptor) is None
    assert own().damaged == ("nothing that is whole was written",)
    os.ftruncate(descriptor, 7)
    assert read_page(descriptor) is None


def test_pages_are_bounded(page: LivePage) -> None:
    stats = stats_with(threads=["\U0001f33e" * 9000] * 900, why_slow=["\x1b[2J" * 9000] * 900)
    step = {**stats["steps"][0], "name": "\U0001f33e" * 9000}
    page.put({**stats, "steps": [{**step, "seconds": float(n)} for n in range(5000)]}, False, 1.0)
    published = read(descriptors()[-1])
    assert published.stats.steps is not None
    assert [step.seconds for step in published.stats.steps] == list(range(4600, 5000))
    assert "\x1b" not in str(published.stats)


def test_blocks_are_as_many_as_a_slow_loop_takes(page: LivePage) -> None:
    assert page.elements_within(1.0) is None
    page.put(stats_with(elements=0), False, 100.0)
    assert page.elements_within(1.0) is None
    page.put(stats_with(elements=256), False, 164.0)
    assert page.elements_within(1.0) == 4
    page.put(stats_with(elements=257), False, 200.0)
    assert page.elements_within(1.0) == 1
    page.put(stats_with(elements=257), False, 201.0)
    assert page.elements_within(1.0) is None
    recent = read(descriptors()[-1]).recent
    assert (recent.seconds, recent.elements) == (37.0, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"nonsense",
        b"[]",
        b"{}",
        b"[" * 100_000,
        json.dumps(page_with(pid="1")).encode(),
        json.dumps(page_with(pid=True)).encode(),
        json.dumps(page_with(pid=1 << 80)).encode(),
        json.dumps(page_with(is_over=1)).encode(),
        json.dumps(page_with(monotonic_seconds=float("nan"))).encode(),
        json.dumps(page_with(recent=None)).encode(),
        json.dumps(page_with()).replace('"elements": 8', '"elements": 1e400').encode(),
        json.dumps(page_with()).replace('"elements": 8', f'"elements": {"9" * 5000}').encode(),
        json.dumps(page_with(stats=stats_with(wait_seconds=1e300))).encode(),
        json.dumps(page_with(stats=stats_with(steps=[{}]))).encode(),
        json.dumps(page_with(stats=stats_with(threads=[1]))).encode(),
        json.dumps(page_with(stats=stats_with(workers=[None] * 2000))).encode(),
        json.dumps(page_with()).replace('"place": "here"', '"place": "<b>"').encode(),
    ],
)
def test_what_does_not_look_like_figures_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        published_from(data)


def test_what_looks_like_figures_is_read() -> None:
    published = published_from(json.dumps(page_with()).encode())
    assert published.stats.elements == 8
    assert set(published.stats.to_dict()) == set(stats_with())


def test_a_file_of_that_name_that_is_no_page_is_told() -> None:
    descriptor = os.memfd_create(NAME)
    try:
        os.write(descriptor, b"x" * 1000)
        assert "cannot be read" in str(own()) and "cannot be read" in own()._repr_html_()
    finally:
        os.close(descriptor)


def test_pages_of_many_that_end_soon_go_with_their_data(monkeypatch: pytest.MonkeyPatch) -> None:
    last = LastFigures()
    monkeypatch.setattr(timed, "LAST_FIGURES", last)
    with bushel.iterate(MapDataset.range(10)) as iterator:
        state = iterator.get_state()
        next(iterator)
        last.took(1e6)
        page = iterator._page
        assert page.read() is not None
        assert len(list(iterator)) == 9
        assert page.read() is None and iterator._page is None
        assert iterator.stats().elements == 10
        assert list(iterator) == []
        iterator.set_state(state)
        iterator._due = iterator._page_due = 0.0
        assert next(iterator) == 0
        assert iterator._page.read() is not None


def test_of_many_that_end_soon_those_that_last_have_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    last = LastFigures()
    last.took(1e6)
    monkeypatch.setattr(timed, "LAST_FIGURES", last)
    now = 100.0
    monkeypatch.setattr(timed, "perf_counter", lambda: now)
    with bushel.iterate(MapDataset.range(10)) as iterator:
        iterator._look()
        assert iterator._page is None and iterator._due == pytest.approx(now + LASTED_SECONDS)
        now += LASTED_SECONDS + 0.01
        iterator._look()
        (seen,) = own().iterators
        assert seen.published.stats.elements == 0 and not seen.published.is_over
        assert iterator._due == pytest.approx(now + 0.5)
        assert len(iterator._run_history.looks) == 1
