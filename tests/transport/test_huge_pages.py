"""Slots that go round for long have large pages, where the system has any; their bytes stay."""

import mmap
import os
import socket
from typing import Any

import numpy as np
import pytest

from bushel.core.memory_file import create_unnamed
from bushel.transport import slots
from bushel.transport.huge_pages import PAGE, file_size, join_pages, map_aligned
from bushel.transport.link import Link
from bushel.transport.slots import Ring, SlotReader
from tests.workers.processes import linux

SIZES = [1, 4096, 1 << 16, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1, 5 * PAGE + 12_345]


def _bytes_of(mapped: mmap.mmap) -> Any:
    return np.frombuffer(mapped, np.uint8)


@pytest.mark.parametrize("size", SIZES)
def test_both_sides_have_the_same_bytes_before_and_after(size: int) -> None:
    descriptor = create_unnamed(file_size(size))
    ours, theirs = map_aligned(descriptor, size), map_aligned(descriptor, size)
    os.close(descriptor)
    written = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    _bytes_of(ours)[:size] = written
    join_pages(ours)
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


@pytest.mark.parametrize("size", [4096, 2 * PAGE - 4096])
def test_small_mappings_stay_as_they_are(size: int) -> None:
    assert file_size(size) == size
    assert not join_pages(mmap.mmap(-1, size))


@linux
def test_what_begins_elsewhere_stays_as_it_is() -> None:
    descriptor = create_unnamed(5 * PAGE)
    # Of two that touch each other, one begins elsewhere if their length is no whole page.
    mappings = [mmap.mmap(descriptor, 4 * PAGE + 4096) for _ in range(2)]
    os.close(descriptor)
    elsewhere = [mapped for mapped in mappings if _bytes_of(mapped).ctypes.data % PAGE]
    assert elsewhere
    assert not any(map(join_pages, elsewhere))


def test_a_slot_is_given_large_pages_once_and_while_it_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined: list[mmap.mmap] = []
    monkeypatch.setattr(slots, "join_pages", joined.append)
    monkeypatch.setattr(slots, "_USES_BEFORE_JOINING", 3)
    ring = Ring()
    kept = ring.take(3 * PAGE)
    seen = []
    for _ in range(6):
        slot = ring.take(3 * PAGE)
        assert slot is not kept
        seen.append(len(joined))
        ring.give_back(slot.number)
    assert seen == [0, 0, 0, 1, 1, 1]


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


def test_batches_arrive_whole_while_their_slots_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is kept over the change of the others, and each is looked at byte by byte."""
    monkeypatch.setattr(slots, "_USES_BEFORE_JOINING", 2)
    sender, receiver = map(Link, socket.socketpair())
    kept: list[Any] = []
    for number in range(12):
        arena = sender.arena()
        if arena is None:
            made = np.full(3 * PAGE, number, np.uint8)
        else:
            made = arena.allocate((3 * PAGE,), np.dtype(np.uint8))
            made[:] = number
        sender.send(made, arena)
        del made, arena
        kept.append(receiver.receive())
        assert kept[-1].min() == kept[-1].max() == number
        if len(kept) > 2:
            del kept[1]
    assert kept[0].max() == 0
    sender.close()
    receiver.close()
