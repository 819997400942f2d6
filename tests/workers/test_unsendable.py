"""What belongs to one process is not sent to others: the error names the step and the variable."""

import functools
import io
import itertools
import mmap
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset
from bushel.errors import PlanError, UnpicklableError, WorkerError
from bushel.transport.link import Link
from bushel.workers.payload import Payload, PayloadPart, load, load_first
from tests.workers.streams import INLINE, with_workers


def _sent(function: Any) -> Any:
    """A function as a worker has it."""
    payload = Payload(function, None, [PayloadPart("map(f)", [function])])
    ours, theirs = socket.socketpair()
    with closing(payload), ours, theirs:
        payload.send(Link(ours))
        load_first(link := Link(theirs))
        return load(link)


def _refusal(function: Any) -> str:
    # Also a TypeError, which is what programs for Grain catch.
    with pytest.raises(UnpicklableError) as caught:
        _sent(function)
    return str(caught.value)


def _by_value(function: Any, **names: Any) -> Any:
    """A function as the main module would have it, whose globals are sent along."""
    space = {"__name__": "__main__", **names}
    exec(f"def read(number, file=None):\n    return {function}", space)
    return space["read"]


class Reader:
    def __init__(self, file: Any) -> None:
        self.file = file

    def __call__(self, number: int) -> Any:
        return next(self.file)


def _closure(file: Any) -> Any:
    def read(number: int) -> Any:
        return next(file)

    return read


def _default(file: Any) -> Any:
    def read(number: int, *, source: Any = file) -> Any:
        return next(source)

    return read


def _local_class(file: Any) -> Any:
    class Local:
        source = file

        def __call__(self, number: int) -> Any:
            return next(self.source)

    return Local()


HOLDERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "closure": (_closure, "the variable `file`, which `read` uses, is an iterator"),
    "global": (
        lambda it: _by_value("next(lines)", lines=it),
        "the global variable `lines`, which `read` uses, is an iterator",
    ),
    "global of a nested function": (
        lambda it: _by_value("(lambda: next(lines))()", lines=it),
        "the global variable `lines`, which `read` uses, is an iterator",
    ),
    "default": (_default, "the default of `source` in `read` is an iterator"),
    "keyword of a partial": (
        lambda it: functools.partial(_by_value("0"), file=it),
        "the argument `file` of `functools.partial(read, ...)` is an iterator",
    ),
    "argument of a partial": (
        lambda it: functools.partial(_by_value("0"), it),
        "argument 0 of `functools.partial(read, ...)` is an iterator",
    ),
    "attribute": (Reader, "the attribute `file` of `Reader` is an iterator"),
    "bound method": (
        lambda it: Reader(it).__call__,
        "the attribute `file` of `Reader` is an iterator",
    ),
    "class attribute": (_local_class, "the attribute `source` of `Local` is an iterator"),
    "in a container": (
        lambda it: _closure({"a": [1, (it,)]}),
        "the variable `file`, which `read` uses, has an iterator in it",
    ),
    "in a function that a function uses": (
        lambda it: _closure(_closure(it)),
        "the variable `file`, which `read` uses, is an iterator",
    ),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_who_holds_it_is_named(name: str) -> None:
    make, said = HOLDERS[name]
    text = _refusal(make(iter([1, 2])))
    assert text.startswith(f"`map(f)` cannot be sent to worker processes: {said}, and each worker")
    assert "map_with_index" in text
    assert text.endswith("or use worker_count=0.")


def _generator() -> Iterator[int]:
    yield 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lines.txt").write_text("1\n2\n3\n")
    return tmp_path / "lines.txt"


@pytest.mark.parametrize("mode", ["r", "rb", "w", "r+b"])
def test_open_files(path: Path, mode: str) -> None:
    with path.open(mode) as file:
        assert re.search("is an open file, .* Pass its path, and open it", _refusal(Reader(file)))


def test_sockets_and_memory_maps(path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert "is an open socket" in _refusal(Reader(ours))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        assert "is a memory map" in _refusal(Reader(mapped))


@pytest.mark.parametrize("lock", [threading.Lock(), threading.RLock()], ids=["lock", "rlock"])
def test_locks(lock: Any) -> None:
    assert "is a lock, and it belongs to this process" in _refusal(Reader(lock))
    assert "is a lock" in _refusal(Reader(threading.Event()))


ITERATORS = {
    "generator": _generator,
    "count": itertools.count,
    "cycle": lambda: itertools.cycle("ab"),
    "enumerate": lambda: enumerate("ab"),
    "zip": lambda: zip("ab", strict=True),
    "map": lambda: map(str, "ab"),
    "keys": lambda: iter({"a": 1}),
    "range": lambda: iter(range(3)),
    "callable": lambda: iter(list, []),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_generators_and_iterators(name: str) -> None:
    kind = "a generator" if name == "generator" else "an iterator"
    assert f"is {kind}, and each worker would" in _refusal(Reader(ITERATORS[name]()))


class Odd:
    def __reduce__(self) -> Any:
        raise ValueError("no such thing")


def test_what_else_cannot_be_pickled() -> None:
    text = _refusal(Reader([Odd()]))
    assert "attribute `file` of `Reader` holds a `Odd` that cannot be pickled (no such" in text


class Reopened:
    """Something that says itself what becomes of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, path.open()

    def __reduce__(self) -> Any:
        return Reopened, (self.path,)


def test_what_is_sent_all_the_same(path: Path) -> None:
    assert _sent(Reader(io.BytesIO(b"abc"))).file.read() == b"abc"
    assert _sent(Reader(io.StringIO("abc"))).file.read() == "abc"
    assert list(_sent(Reader(range(3))).file) == [0, 1, 2]
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        assert _sent(Reader(getattr(sys, name))).file is getattr(sys, name)
    assert isinstance(_sent(Reader(np.memmap(path, mode="r"))).file, np.memmap)
    reopened = Reopened(path)
    again = _sent(reopened)
    assert again.file.read() == reopened.file.read() == "1\n2\n3\n"
    again.file.close()
    reopened.file.close()


class Source:
    """A source with an iterator, which has nothing to do with its records."""

    def __init__(self, stamps: Iterator[Any]) -> None:
        self.stamps = stamps

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        next(self.stamps)
        return index


def test_with_workers(path: Path) -> None:
    with path.open() as file:
        ds = with_workers(MapDataset.range(5).map(_closure(file)), 1)
        with pytest.raises(PlanError, match=r"`map\(read\)` cannot be sent .* variable `file`"):
            next(iter(ds))
    source = Source(iter(range(5)))
    assert list(with_workers(MapDataset.source(source), 1)) == [0, 1, 2, 3, 4]


def test_an_iterator_of_a_source_that_python_cannot_pickle() -> None:
    ds = with_workers(MapDataset.source(Source(itertools.pairwise(range(6)))), 1)
    with pytest.raises(PlanError, match=r"attribute `stamps` of `Source` is an iterator"):
        next(iter(ds))


def test_as_an_element(path: Path) -> None:
    """An open file does not arrive as a copy of its text."""

    def opened(number: int) -> Any:
        return path.open() if number == 1 else number

    with iter(with_workers(MapDataset.range(3).map(opened).to_iter_dataset(INLINE), 1)) as iterator:
        assert next(iterator) == 0
        with pytest.raises(WorkerError, match=r"position 1 cannot be sent .*an open file"):
            next(iterator)
