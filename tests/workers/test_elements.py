"""Whatever an element is made of, it arrives as it was made, and belongs to the user."""

import gc
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import bushel
from bushel import MapDataset
from tests.nursery import one_nursery
from tests.workers import elements, parts
from tests.workers.elements import assert_same
from tests.workers.processes import linux, told
from tests.workers.streams import INLINE, make_loader, with_workers

__all__ = ["one_nursery"]  # What is made is looked at here, not who makes it.

BATCHES: dict[str, Any] = {
    "numbers": lambda n: n,
    "trees": lambda n: {"a": np.full((2, 3), n, np.float32), "b": (np.int8(n), [float(n)])},
    "big-endian": lambda n: np.arange(n, n + 3, dtype=">i4"),
    "strided": lambda n: np.arange(20).reshape(4, 5)[::2, ::-1] + n,
    "fortran order": lambda n: np.asfortranarray(np.arange(12).reshape(3, 4) * n),
    "structured": lambda n: np.array((n, (n, n), b"x"), elements.RECORD),
    "dates": lambda n: np.datetime64("2020-01-01") + np.arange(3) * n,
    "text": lambda n: f"number {n * n}",
    "bytes": lambda n: b"x" * n,
    "objects": lambda n: elements.objects(n, None, "x"),
    "none as a leaf": lambda n: {"x": np.arange(n, n + 2), "nothing": None},
    "empty": lambda n: np.empty((0, 3), np.float32),
    "named tuples": lambda n: elements.Pair(np.arange(3) + n, n),
    "masked": lambda n: np.ma.masked_array([n, n + 1], mask=[n % 2, 0]),
    "bfloat16": lambda n: np.full(3, n).astype(ml_dtypes.bfloat16),
}
# Those of which numpy has more to say than where their bytes are.
LISTED = {"text", "bytes", "objects", "masked", "none as a leaf"}


@pytest.mark.parametrize("kinds", [set(BATCHES) - LISTED, LISTED], ids=["stacked", "listed"])
def test_batches_of_every_kind(kinds: set[str]) -> None:
    """Of positions in the workers, and after a filter."""

    def make(number: int) -> Any:
        return {kind: BATCHES[kind](number) for kind in sorted(kinds)}

    by_position = MapDataset.range(11).map(make).batch(4)
    filtered = MapDataset.range(23).to_iter_dataset(INLINE).filter(parts.is_odd)
    for ds in (by_position, filtered.map(make).batch(4)):
        expected = list(with_workers(ds, 0))
        got = list(with_workers(ds, 1))
        assert len(got) == len(expected) == 3
        assert_same(got, expected)


def test_large_elements_and_sizes_that_change_wildly() -> None:
    sizes = (0, 13_000_000, 1, 2, 13_000_000, 300_000, 0, 7, 12_500_000, 1000, 5, 13_100_000)

    def make(number: int) -> Any:
        size = sizes[number % len(sizes)]
        return {"x": np.arange(number, number + size, dtype=np.float32), "name": "n" * (size % 97)}

    stream = with_workers(MapDataset.range(2 * len(sizes)).map(make), 2)
    for number, element in enumerate(stream):
        made = make(number)
        assert element["x"].shape == made["x"].shape
        assert np.array_equal(element["x"], made["x"])
        assert element["name"] == made["name"]
    assert number == 2 * len(sizes) - 1


def test_batches_of_fifty_megabytes() -> None:
    source = np.arange(320, dtype=np.int32)
    ds = MapDataset.source(source).map(lambda n: np.full((512, 800), n)).batch(32)
    for number, batch in enumerate(with_workers(ds, 2)):
        assert batch.nbytes > 50_000_000
        assert batch[:, 0, 0].tolist() == list(range(32 * number, 32 * number + 32))
        assert (batch == batch[:, :1, :1]).all()
    assert number == 9


# Who owns them.


def _full(number: int) -> Any:
    return {"x": np.full((64, 128), number, np.float32), "y": np.full(40_000, number, np.int32)}


def _is_full(element: Any, number: int) -> bool:
    return bool((element["x"] == number).all() and (element["y"] == number).all())


@pytest.mark.parametrize("keep_every", [1, 3])
def test_kept_elements_stay_what_they_are(keep_every: int) -> None:
    stream = with_workers(MapDataset.range(300).map(_full), 2)
    kept = {}
    for number, element in enumerate(stream):
        assert _is_full(element, number)
        if number % keep_every == 0:
            kept[number] = element
    assert len(kept) == 300 / keep_every
    assert all(_is_full(element, number) for number, element in kept.items())
    # And after the end of the stream, when the workers are gone.
    del stream
    gc.collect()
    assert all(_is_full(element, number) for number, element in kept.items())


@linux
def test_a_kept_element_takes_memory_and_no_file(tmp_path: Path) -> None:
    """A process may have so many files open, often 1,024; one may keep more elements than that."""
    answer = told(
        tmp_path,
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
        ds = MapDataset.range(200).map(lambda n: np.full(300_000, n, np.uint8)).to_iter_dataset()
        kept = list(ds.mp_prefetch(workers(2)))
        tell(kept=len(kept), good=all(bool((x == n).all()) for n, x in enumerate(kept)))
        """,
    )
    assert answer == {"kept": 200, "good": True}


VIEWS = {
    "a slice": lambda element: element["x"][3:5],
    "transposed": lambda element: element["y"].reshape(200, 200).T[::3],
    "a memoryview": lambda element: memoryview(element["y"]),
    "of the buffer": lambda element: np.frombuffer(element["x"].data, np.float32),
    "of a view": lambda element: element["x"].view(np.uint32).view(np.float32),
    "an iterator": lambda element: iter(element["y"]),
}


def test_parts_of_elements_keep_what_they_need() -> None:
    kept = []
    for number, element in enumerate(with_workers(MapDataset.range(200).map(_full), 1)):
        kept.append((number, list(VIEWS.values())[number % len(VIEWS)](element)))
        del element
    for number, view in kept:
        assert {float(value) for value in np.asarray(list(view)).ravel()} == {float(number)}


def test_writing_to_one_changes_no_other() -> None:
    kept = []
    with iter(with_workers(MapDataset.range(120).map(_full).repeat(2), 2)) as iterator:
        for number, element in enumerate(iterator):
            # What was written into memory that is used again must not show either.
            assert _is_full(element, number % 120)
            element["x"][:] = -number
            element["y"] *= 0
            if number % 5 == 0:
                kept.append((number, element))
    for number, element in kept:
        assert (element["x"] == -number).all()
        assert not element["y"].any()


def test_elements_are_writable_as_without_workers() -> None:
    x = np.arange(40_000).reshape(400, 100)
    for operations in ([], [bushel.Batch(8)], [parts.NotThird(), bushel.Batch(8), parts.Double()]):
        flags = [
            {
                (element.flags.writeable, element.flags.c_contiguous)
                for element in make_loader(*operations, workers=count, source=x, count=400)
            }
            for count in (0, 1)
        ]
        assert flags[0] == flags[1]
    original = x.copy()
    for element in make_loader(bushel.Batch(8), workers=1, source=x, count=400):
        element[:] = -1
    assert (x == original).all()


def test_elements_may_die_in_other_threads() -> None:
    """Memory comes back from wherever the last one who used it lets go of it."""
    stop = threading.Event()
    shelf: list[Any] = []

    def consume() -> None:
        while not stop.is_set():
            while len(shelf) > 3:
                shelf.pop(0)

    consumers = [threading.Thread(target=consume) for _ in range(2)]
    for consumer in consumers:
        consumer.start()
    try:
        for number, element in enumerate(with_workers(MapDataset.range(400).map(_full), 2)):
            assert _is_full(element, number)
            shelf.append(element)
    finally:
        stop.set()
        for consumer in consumers:
            consumer.join()
    assert number == 399


def test_instances_of_local_classes_are_of_that_class() -> None:
    class Local:
        def __init__(self, number: int) -> None:
            self.number = number

    got = list(with_workers(MapDataset.range(30).map(Local), 2))
    assert {type(element) for element in got} == {Local}
    assert [element.number for element in got] == list(range(30))


def test_functions_as_elements() -> None:
    functions = with_workers(MapDataset.range(4).map(lambda n: lambda x: n + x), 1)
    assert [function(10) for function in functions] == [10, 11, 12, 13]


def test_what_cannot_travel_is_said() -> None:
    def lock_at_three(number: int) -> Any:
        return threading.Lock() if number == 3 else number

    iterator = iter(with_workers(MapDataset.range(6).map(lock_at_three), 1))
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(Exception, match=r"(?s)pickle.*lock|lock.*pickle"):
        next(iterator)
    iterator.close()
