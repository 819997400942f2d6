"""Large slots have large pages, where the system has any; nobody can tell by their bytes."""

import mmap
import os
from typing import Any

import numpy as np
import pytest

from bushel.core.memory_file import create_unnamed
from bushel.transport import slots
from bushel.transport.huge_pages import PAGE, file_size, join_pages, map_aligned
from bushel.transport.slots import Ring, SlotReader
from tests.workers.processes import linux

SIZES = [1, 4096, 1 << 16, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1, 5 * PAGE + 12_345]


def _bytes_of(mapped: Any) -> Any:
    return np.frombuffer(mapped, np.uint8)


@pytest.mark.parametrize("size", SIZES)
def test_both_sides_have_the_same_bytes(size: int) -> None:
    descriptor = create_unnamed(file_size(size))
    ours, theirs = map_aligned(descriptor, size), map_aligned(descriptor, size)
    os.close(descriptor)
    join_pages(ours, size)
    assert not _bytes_of(theirs).any()
    written = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    _bytes_of(ours)[:size] = written
    assert (_bytes_of(theirs)[:size] == written).all()
    _bytes_of(theirs)[size - 1] ^= 255
    assert _bytes_of(ours)[size - 1] == written[-1] ^ 255


@linux
def test_large_mappings_begin_where_a_large_page_may() -> None:
    """Several at a time, whatever lies in between."""
    descriptor = create_unnamed(file_size(3 * PAGE + 5))
    kept: list[Any] = []
    for _ in range(8):
        kept.append(map_aligned(descriptor, 3 * PAGE + 5))
        assert _bytes_of(kept[-1]).ctypes.data % PAGE == 0
        kept.append(mmap.mmap(-1, 4096))
    os.close(descriptor)


@linux
def test_holes_between_other_mappings_do_not_matter() -> None:
    """Places of nearly the right size are free, as after a long run."""
    others = [mmap.mmap(-1, 3 * PAGE + 4096 * hole) for hole in range(200)]
    del others[::2]
    descriptor = create_unnamed(file_size(3 * PAGE))
    kept = [map_aligned(descriptor, 3 * PAGE) for _ in range(60)]
    os.close(descriptor)
    assert not [mapped for mapped in kept if _bytes_of(mapped).ctypes.data % PAGE]


@linux
def test_what_is_let_go_of_is_unmapped() -> None:
    descriptor = create_unnamed(file_size(3 * PAGE))
    inode = str(os.fstat(descriptor).st_ino)

    def mappings() -> int:
        with open("/proc/self/maps") as maps:
            return sum(line.split()[4] == inode for line in maps)

    kept = [map_aligned(descriptor, 3 * PAGE) for _ in range(3)]
    os.close(descriptor)
    assert mappings() >= 1
    array = _bytes_of(kept[0])
    kept.clear()
    assert mappings() == 1
    array[:] = 1
    del array
    assert mappings() == 0


@pytest.mark.parametrize("size", [4096, 2 * PAGE - 4096])
def test_small_mappings_stay_as_they_are(size: int) -> None:
    assert file_size(size) == size
    descriptor = create_unnamed(size)
    assert join_pages(map_aligned(descriptor, size), size)
    assert os.fstat(descriptor).st_blocks == 0
    os.close(descriptor)


@linux
def test_what_begins_elsewhere_stays_as_it_is() -> None:
    descriptor = create_unnamed(5 * PAGE)
    # Of two that touch each other, one begins elsewhere if their length is no whole page.
    mappings = [memoryview(mmap.mmap(descriptor, 4 * PAGE + 4096)) for _ in range(2)]
    elsewhere = [mapped for mapped in mappings if _bytes_of(mapped).ctypes.data % PAGE]
    assert elsewhere
    assert all(join_pages(mapped, 4 * PAGE) for mapped in elsewhere)
    assert os.fstat(descriptor).st_blocks == 0
    os.close(descriptor)


@linux
@pytest.mark.parametrize(
    ("size", "large"), [(2 * PAGE, 2), (2 * PAGE + 1, 2), (5 * PAGE // 2, 3), (3 * PAGE - 1, 3)]
)
def test_no_more_than_half_a_page_is_wasted(size: int, large: int) -> None:
    descriptor = create_unnamed(file_size(size))
    mapped = map_aligned(descriptor, size)
    join_pages(mapped, size)
    used = os.fstat(descriptor).st_blocks * 512
    os.close(descriptor)
    # Where the system has no large pages, all that was touched is a small one for each.
    assert 0 < used <= large * PAGE


@linux
@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_the_system_is_not_asked_again_when_it_took_long(seconds: float) -> None:
    size = 3 * PAGE
    descriptor = create_unnamed(file_size(size))
    mapped = map_aligned(descriptor, size)
    os.close(descriptor)
    if not join_pages(mapped, size, iter([0.0, 0.0]).__next__):
        pytest.skip("this system joins no pages")
    assert join_pages(mapped, size, iter([5.0, 5.0 + seconds]).__next__) == (not seconds)


def test_a_ring_asks_for_large_pages_until_it_is_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = [True, True, False], []

    def answer(mapped: memoryview, size: int) -> bool:
        asked.append(size)
        return answers[len(asked) - 1]

    monkeypatch.setattr(slots, "join_pages", answer)
    ring = Ring()
    taken = [ring.take(3 * PAGE) for _ in range(5)]
    assert len(asked) == 3
    assert len({slot.number for slot in taken}) == 5


@pytest.mark.parametrize("size", SIZES)
def test_marks_are_seen_in_slots_of_any_size(size: int) -> None:
    ring, let_go = Ring(), []
    reader = SlotReader(let_go.append)
    slot = ring.take(size)
    slot.memory[:] = 7
    descriptor = slot.take_descriptor()
    assert descriptor is not None
    reader.open(slot.number, descriptor, slot.size)
    array = reader.lease(slot.number, slot.size)
    assert (array == 7).all()
    assert not slot.came_back()
    del array
    assert slot.came_back()
    assert (slot.memory == 7).all()
