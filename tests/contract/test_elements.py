"""Whatever an element is made of, it is the same by every way that it can take.

A kind of element joins by being added to the list in `tests/workers/elements.py`. What may differ
is said there, too: an array that is repeated in place may be written to after it was copied.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bushel import MapDataset, ReadOptions
from bushel.errors import BatchError
from bushel.experimental import RepeatIterDataset
from tests.nursery import one_nursery
from tests.workers import elements
from tests.workers.elements import assert_same
from tests.workers.streams import INLINE, with_workers

__all__ = ["one_nursery"]  # What is made is looked at here, not who makes it.

# A file keeps neither the order in memory nor who may write to it.
FLAGS = {"fortran order", "transposed", "read-only"}
THREADS = ReadOptions(num_threads=4, prefetch_buffer_size=8)


def _stream(options: ReadOptions = INLINE) -> Any:
    # As a stream that keeps None: without that, None is an element that was dropped.
    return MapDataset.source(elements.Elements()).to_iter_dataset(options, allow_nones=True)


def _unchanged(element: Any) -> Any:
    return element


def _second_epoch(ds: Any) -> list[Any]:
    return list(RepeatIterDataset(ds, 2))[len(elements.MAKE) :]


WAYS: dict[str, Callable[[], list[Any]]] = {
    "inline": lambda: list(_stream()),
    "threads": lambda: list(_stream(THREADS)),
    "workers": lambda: list(with_workers(_stream(), 1)),
    # The buffer is filled here, from a worker; what comes out of it goes to one once more.
    "to workers and back": lambda: list(
        with_workers(_stream().shuffle(seed=1, buffer_size=1).map(_unchanged), 1)
    ),
    "cache in memory": lambda: _second_epoch(_stream().cache()),
}


@pytest.fixture(scope="module", params=WAYS)
def arrived(request: Any) -> dict[str, Any]:
    """Every kind of element, by one of the ways."""
    return dict(zip(elements.MAKE, WAYS[request.param](), strict=True))


@pytest.mark.parametrize("kind", elements.MAKE)
def test_as_it_was_made(kind: str, arrived: dict[str, Any]) -> None:
    assert_same(arrived[kind], elements.MAKE[kind]())


@pytest.mark.parametrize("kind", elements.MAKE)
def test_through_a_file(kind: str, tmp_path: Path) -> None:
    """A cache on disk holds no pickles: it gives the same, or says what it does not hold."""
    number = list(elements.MAKE).index(kind)
    ds = MapDataset.source(elements.Elements())[number : number + 1]
    cached = ds.to_iter_dataset(INLINE, allow_nones=True).cache(tmp_path / "kept")
    try:
        list(cached)
        (got,) = list(cached)
    except BatchError as error:
        assert "a cache on disk holds arrays" in str(error)
        return
    made = elements.MAKE[kind]()
    if kind in FLAGS:
        assert repr(got) == repr(made)
    else:
        assert_same(got, made)
