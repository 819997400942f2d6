"""Slots go round: one that is let go of is there for the very next value."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset
from bushel.transport.arena import Arena
from bushel.transport.link import Link
from bushel.transport.slots import Ring, SlotReader
from tests.workers.processes import linux
from tests.workers.streams import with_workers

LARGE = 1 << 20


@pytest.fixture
def ends() -> Iterator[tuple[Link, Link]]:
    ours, theirs = map(Link, socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def _sent(ends: tuple[Link, Link], value: int, size: int = LARGE) -> Any:
    sender, receiver = ends
    arena = sender.arena()
    if arena is None:
        made = np.full(size, value, np.uint8)
    else:
        made = arena.allocate((size,), np.dtype(np.uint8))
        made[:] = value
    sender.send(made, arena)
    return receiver.receive()


def test_what_was_let_go_of_is_used_for_the_next_value(ends: tuple[Link, Link]) -> None:
    """Without a word from the one who let go of it."""
    addresses = set()
    for number in range(20):
        array = _sent(ends, number)
        assert (array == number).all()
        addresses.add(array.ctypes.data)
        del array
    assert len(addresses) == 1


def test_what_was_made_in_a_slot_is_not_copied(ends: tuple[Link, Link]) -> None:
    """Both sides have the very same bytes: whatever is written there shows here."""
    sender, receiver = ends
    _sent(ends, 1)
    arena = sender.arena()
    assert arena is not None
    made = arena.allocate((LARGE,), np.dtype(np.uint8))
    made[:] = 2
    sender.send({"image": made, "label": np.arange(3)}, arena)
    batch = receiver.receive()
    made[7] = 9
    assert batch["image"][7] == 9
    assert batch["label"].tolist() == [0, 1, 2]


def test_what_is_made_beside_a_slot_is_copied_into_it(ends: tuple[Link, Link]) -> None:
    sender, receiver = ends
    _sent(ends, 1)
    arena = sender.arena()
    assert arena is not None
    made = arena.allocate((LARGE // 2,), np.dtype(np.uint8))
    made[:] = 3
    beside = np.full(LARGE // 4, 4, np.uint8)
    sender.send([made, beside], arena)
    there, copied = receiver.receive()
    made[0], beside[0] = 5, 6
    assert (there[0], there[1], copied[0]) == (5, 3, 4)


@pytest.mark.parametrize("value", [None, "a" * 300, {"x": [1, 2]}, b"b" * 10_000])
def test_what_has_no_arrays_arrives_too(ends: tuple[Link, Link], value: Any) -> None:
    sender, receiver = ends
    assert sender.send(value) > 0
    assert receiver.receive() == value
    assert receiver.leased == 0


def test_what_is_kept_is_not_written_to(ends: tuple[Link, Link]) -> None:
    kept = [_sent(ends, number) for number in range(5)]
    del kept[2]
    _sent(ends, 9)
    again = _sent(ends, 10)
    assert [int(array[0]) for array in kept] == [0, 1, 3, 4]
    assert [array.min() == array.max() for array in [*kept, again]] == [True] * 5
    assert ends[1].leased >= 5 * LARGE


def test_who_keeps_one_needs_two(ends: tuple[Link, Link]) -> None:
    addresses, before = set(), _sent(ends, 0)
    for number in range(1, 30):
        array = _sent(ends, number)
        addresses.add(array.ctypes.data)
        assert before[0] == number - 1
        before = array
    assert len(addresses) == 2


def test_room_is_taken_when_something_is_put_in(ends: tuple[Link, Link]) -> None:
    """What is let go of while elements are read counts."""
    sender, receiver = ends
    first = _sent(ends, 1)
    address = first.ctypes.data
    arena = sender.arena()
    assert arena is not None
    del first
    made = arena.allocate((LARGE,), np.dtype(np.uint8))
    made[:] = 2
    sender.send(made, arena)
    assert receiver.receive().ctypes.data == address


def test_room_that_was_not_used_can_be_returned(ends: tuple[Link, Link]) -> None:
    sender, _ = ends
    address = _sent(ends, 1).ctypes.data
    for put_in in (False, True):
        arena = sender.arena()
        assert arena is not None
        if put_in:
            arena.allocate((LARGE,), np.dtype(np.uint8))
        sender.return_arena(arena)
        sender.return_arena(arena)
    assert _sent(ends, 2).ctypes.data == address


def test_the_one_used_last_is_taken_first() -> None:
    ring = Ring()
    slots = [ring.take(LARGE) for _ in range(3)]
    for slot in (slots[2], slots[0], slots[1]):
        ring.give_back(slot.number)
    assert [ring.take(LARGE) for _ in range(3)] == slots[::-1]


@linux
def test_a_forked_child_says_nothing_about_slots() -> None:
    ring, let_go = Ring(), []
    reader = SlotReader(let_go.append)
    slot = ring.take(LARGE)
    descriptor = slot.take_descriptor()
    assert descriptor is not None
    reader.open(slot.number, descriptor, slot.size)
    array = reader.lease(slot.number, LARGE)
    child = os.fork()
    if not child:
        del array
        os._exit(0)
    os.waitpid(child, 0)
    assert not slot.came_back()
    del array
    assert let_go == [slot.number]
    assert slot.came_back()
    assert not slot.came_back()


def _with_faults(number: int) -> Any:
    import resource

    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return {"image": np.full(LARGE // 4, number % 256, np.uint8), "faults": faults}


def test_memory_is_touched_for_the_first_time_only_at_the_start() -> None:
    """Page faults are those of the slots that go round, however many batches there are."""
    import resource

    ds = with_workers(MapDataset.range(10**6).map(_with_faults).batch(16), 1)
    pages = 16 * LARGE // 4 // resource.getpagesize()
    theirs, ours = [], []
    with iter(ds) as iterator:
        for _ in range(120):
            batch: Any = next(iterator)
            theirs.append(int(batch["faults"][-1]))
            ours.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
            int(batch["image"].sum())
    # At most 64 MB are under way, which is 16 batches; and two are with the user.
    assert theirs[-1] - theirs[4] < 18 * pages
    assert ours[-1] - ours[4] < 18 * pages


def test_the_smallest_that_fits_is_taken_and_of_those_the_one_used_last() -> None:
    ring = Ring()
    first, second, large = (ring.take(size) for size in (10, 10, 1 << 17))
    for slot in (second, large, first):
        ring.give_back(slot.number)
    assert [ring.take(10) for _ in range(3)] == [second, first, large]
    assert ring.dropped == []


def test_a_slot_that_was_never_sent_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring()
    slot = ring.take(10)
    descriptor = slot.descriptor
    ring.give_back(slot.number)
    closed, close = [], os.close
    monkeypatch.setattr(os, "close", lambda number: (closed.append(number), close(number)))
    ring.take(1 << 20)  # For which that one is too small.
    assert ring.dropped == [slot.number]
    assert descriptor in closed


def test_what_just_fits_into_an_arena_is_made_there() -> None:
    arena = Arena(Ring(), 1 << 16)
    made = arena.allocate((1 << 16,), np.dtype(np.uint8))
    assert arena.slot is not None
    assert np.shares_memory(made, arena.slot.memory)
    assert not np.shares_memory(arena.allocate((1,), np.dtype(np.uint8)), arena.slot.memory)
