"""Large arrays that are put where their batch will be as soon as they are made."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.core.landing import LEAST_BYTES, Landing
from bushel.core.room import room

SIDE = 160
INLINE = bushel.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def picture(number: int, side: int = SIDE) -> Any:
    return np.full((side, side, 3), number % 251, np.uint8) + np.arange(3, dtype=np.uint8)


def crop(number: int) -> Any:
    return picture(number, 2 * SIDE)[5 : 5 + SIDE, 7 : 7 + SIDE]


# What an element is made of, and whether it is put into its batch at once.
KINDS: dict[str, tuple[Callable[[int], Any], bool]] = {
    "an array": (picture, True),
    "a dict": (lambda i: {"image": picture(i), "label": i}, True),
    "a tuple": (lambda i: (i, picture(i), crop(i)), True),
    "a list": (lambda i: [picture(i)], True),
    "a crop": (lambda i: {"image": crop(i)}, True),
    "a crop that is flipped": (lambda i: {"image": crop(i)[:, ::-1]}, True),
    "floats": (lambda i: picture(i).astype(np.float32), True),
    "axes in another order": (lambda i: picture(i).transpose(2, 0, 1), False),
    "the other byte order": (lambda i: picture(i).astype(">f4"), False),
    "objects": (lambda i: picture(i).astype(object), False),
    "little": (lambda i: picture(i)[:20].copy(), False),
    "deep within": (lambda i: {"a": {"b": crop(i)}}, False),
    "no row": (lambda i: {"image": np.float64(i)}, False),
}


def put_by(function: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    """The batches, and whether each array of them was there before it was joined."""
    was_there: list[bool] = []
    joined = Landing.joined

    def watched(self: Landing, rows: Any) -> Any:
        whole = joined(self, rows)
        was_there.append(whole is not None)
        return whole

    monkeypatch.setattr(Landing, "joined", watched)
    dataset = bushel.MapDataset.range(more.pop("length", 24)).map(function)
    batches = list(dataset.batch(8, **more).to_iter_dataset(INLINE))
    return batches, was_there


def expected(function: Callable[[int], Any], length: int = 24, size: int = 8) -> list[Any]:
    elements = [function(number) for number in range(length)]
    return [joined(elements[start : start + size]) for start in range(0, length, size)]


def joined(elements: list[Any]) -> Any:
    first = elements[0]
    if isinstance(first, dict):
        return {name: joined([element[name] for element in elements]) for name in first}
    if isinstance(first, (tuple, list)):
        return type(first)(map(joined, map(list, zip(*elements, strict=True))))
    return np.stack(elements)


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            same(one[name], other[name])
    elif isinstance(one, (tuple, list)):
        assert len(one) == len(other)
        for each, its_other in zip(one, other, strict=True):
            same(each, its_other)
    else:
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.flags.writeable
        assert np.array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_the_batch_is_the_same_and_copied_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, at_once = KINDS[kind]
    batches, was_there = put_by(function, monkeypatch)
    same(batches, expected(function))
    assert any(was_there) == at_once
    assert room.landing is None
    assert room.landed is None


def one_that_is_kept() -> Callable[[int], Any]:
    memory = picture(0)

    def function(number: int) -> Any:
        memory[:] = number
        return memory

    return function


def in_a_dict_that_is_kept() -> Callable[[int], Any]:
    kept: dict[str, Any] = {}

    def function(number: int) -> Any:
        kept["image"] = picture(number)
        return kept

    return function


def a_view_of_one_that_is_kept() -> Callable[[int], Any]:
    memory = picture(0, 2 * SIDE)

    def function(number: int) -> Any:
        memory[:] = number
        return {"image": memory[:SIDE]}

    return function


@pytest.mark.parametrize(
    "make", [one_that_is_kept, in_a_dict_that_is_kept, a_view_of_one_that_is_kept]
)
def test_what_somebody_else_has_is_left_alone(
    make: Callable[[], Callable[[int], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function may change one array again and again: then all of a batch are the last one."""
    batches, was_there = put_by(make(), monkeypatch, length=8)
    assert was_there == [False]
    same(batches, expected(make(), length=8))


def test_several_batches_at_a_time_are_each_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = bushel.MapDataset.range(24).map(picture).batch(4)
    same(dataset.__getitems__(range(6)), expected(picture, size=4))
    landing = Landing(4, 8)
    elements = [picture(number) for number in range(8)]
    assert landing.suits(elements[0], 8)
    put = list(map(landing.put, (elements.pop(0) for _ in range(8))))
    for start in (0, 4):
        whole = landing.joined(put[start : start + 4])
        assert whole is not None
        assert all(np.shares_memory(whole, row) for row in put[start : start + 4])
    assert landing.joined(put[1:5]) is None
    assert landing.joined(put[:3]) is None
    assert landing.joined([*put[:3], put[4]]) is None


def test_an_odd_one_is_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(number: int) -> Any:
        return {"image": picture(number, SIDE + (number == 13))}

    with pytest.raises(bushel.errors.BatchError, match=r"\(161, 161, 3\) in element 5"):
        put_by(odd, monkeypatch)


@pytest.mark.parametrize(
    "odd",
    [
        lambda i: {"image": picture(i) if i != 9 else picture(i).astype(np.float64)},
        lambda i: {"image": picture(i) if i != 9 else picture(i).tolist()},
        lambda i: {"image": np.asfortranarray(picture(i)) if i % 8 > 2 else picture(i)},
        lambda i: {"image": picture(i) if i % 3 else KEPT},
    ],
    ids=["another type", "a list", "another order", "one that is kept now and then"],
)
def test_elements_that_are_not_alike(odd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, _ = put_by(odd, monkeypatch)
    same(batches, expected(odd))


KEPT = picture(7)


def test_a_failure_ends_the_batch_and_the_stream_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(number: int) -> Any:
        if number == 11:
            raise ValueError("eleven")
        return picture(number)

    iterator = iter(bushel.MapDataset.range(24).map(fails).batch(8).to_iter_dataset(INLINE))
    wanted = expected(picture)
    same(next(iterator), wanted[0])
    with pytest.raises(ValueError, match="eleven"):
        next(iterator)
    same(next(iterator), wanted[2])
    assert room.landing is None
    assert room.landed is None


def test_short_and_single_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, _ = put_by(picture, monkeypatch, length=21)
    same(batches, expected(picture, length=21))
    ones = list(bushel.MapDataset.range(3).map(picture).batch(1).to_iter_dataset(INLINE))
    same(ones, expected(picture, length=3, size=1))


def test_batches_within_functions_have_their_own_places(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = bushel.MapDataset.range(8).map(picture).batch(4)

    def outer(number: int) -> Any:
        return {"image": picture(number), "inner": inner[number % 2]}

    batches, was_there = put_by(outer, monkeypatch)
    same(batches, expected(outer))
    assert any(was_there)


def test_batch_functions_get_elements_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, was_there = put_by(picture, monkeypatch, batch_fn=lambda rows: [r.base for r in rows])
    assert not was_there
    assert batches == [[None] * 8] * 3


def test_batches_do_not_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    batches, was_there = put_by(lambda i: {"image": crop(i)}, monkeypatch)
    assert all(was_there)
    first, second, _ = (batch["image"] for batch in batches)
    assert not np.shares_memory(first, second)
    first[:] = 0
    same(batches[1:], expected(lambda i: {"image": crop(i)})[1:])


@pytest.mark.parametrize("options", [bushel.ReadOptions(2, 4), bushel.ReadOptions()])
def test_threads_make_the_same(options: Any) -> None:
    makers: set[int] = set()

    def function(number: int) -> Any:
        makers.add(threading.get_ident())
        return {"image": crop(number), "label": number}

    dataset = bushel.MapDataset.range(64).map(function).batch(8)
    same(list(dataset.to_iter_dataset(options)), expected(function, length=64))


def test_workers_make_them_in_the_memory_that_is_sent() -> None:
    dataset = bushel.MapDataset.range(96).map(lambda i: {"image": crop(i), "label": i}).batch(8)
    stream = dataset.to_iter_dataset(INLINE).mp_prefetch(
        bushel.MultiprocessingOptions(num_workers=1)
    )
    same(list(stream), expected(lambda i: {"image": crop(i), "label": i}, length=96))


def test_a_failure_in_a_worker_leaves_the_batches_around_it_alone() -> None:
    def fails(number: int) -> Any:
        if number % 40 == 11:
            raise ValueError("eleven")
        return {"image": crop(number)}

    stream = bushel.MapDataset.range(96).map(fails).batch(8).to_iter_dataset(INLINE)
    options = bushel.MultiprocessingOptions(num_workers=1)
    iterator = iter(stream.mp_prefetch(options))
    wanted = expected(lambda i: {"image": crop(i)}, length=96)
    for number, batch in enumerate(wanted):
        if number in (1, 6, 11):
            with pytest.raises(ValueError, match="eleven"):
                next(iterator)
        else:
            same(next(iterator), batch)
    iterator.close()


def test_what_is_little_is_not_looked_at() -> None:
    row = np.zeros(LEAST_BYTES - 1, np.uint8)
    assert not Landing(4, 4).suits({"x": row}, 4)
    assert not Landing(4, 4).suits(np.zeros(LEAST_BYTES, np.uint8), 3)
    assert not Landing(1, 1).suits(np.zeros(LEAST_BYTES, np.uint8), 1)
