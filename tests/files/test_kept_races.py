"""Processes that make the same kept file, are killed meanwhile, or find the disk full."""

import os
import random
import resource
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bushel import MapDataset
from bushel.errors import FileError
from tests.files.forks import true_in_a_fork
from tests.files.test_private import (
    LINES,
    Place,
    Writer,
    compressed_lines,
    index_of_lines,
    kept_files,
    place,
    row_groups,
    writer,
)

__all__ = ["place", "writer"]  # Fixtures.


def cached_stream(place: Place) -> bool:
    ds = MapDataset.source(LINES[:3000]).to_iter_dataset().cache(place.data / "kept")
    return list(ds) == LINES[:3000]


def compacted(place: Place) -> bool:
    ds = MapDataset.range(3000).filter(lambda x: x % 3 == 0).compact(cache=place.data / "kept")
    return len(ds) == 1000 and ds[999] == 2997


MAKERS = [index_of_lines, compressed_lines, row_groups, cached_stream, compacted]


def started(use: Callable[[Place], Any], place: Place) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            os._exit(0 if use(place) else 1)
        except BaseException:
            os._exit(2)
    return child


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("use", MAKERS)
def test_makers_that_are_killed_leave_nothing_wrong(
    place: Place, use: Callable[[Place], Any]
) -> None:
    rng = random.Random(5)
    assert use(place)  # Everything is imported, so that children begin at once.
    for _ in range(4):
        for path in [*kept_files(place.cache), *place.data.glob("kept*")]:
            path.unlink()
        children = [started(use, place) for _ in range(3)]
        for _ in range(rng.randrange(3000)):
            os.sched_yield()
        for child in children[:2]:
            os.kill(child, signal.SIGKILL)
        assert [ended(child) in (0, -signal.SIGKILL) for child in children] == [True] * 3
        assert use(place)
    assert use(place)
    assert not [path for path in place.data.iterdir() if path.name.endswith(".partial")]


def test_a_full_disk_is_an_error_or_done_without(place: Place, writer: Writer) -> None:
    """As full as it can be made without one: no file may be longer than so many bytes."""
    assert writer.use(place)
    for path in kept_files(place.cache):
        path.unlink()

    def right_or_refused() -> bool:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        warnings.simplefilter("ignore")
        try:
            return bool(writer.use(place))
        except FileError as error:
            return "BUSHEL_CACHE" in str(error)

    assert true_in_a_fork(right_or_refused)
    assert writer.use(place)


def test_names_that_lead_elsewhere(place: Place, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    for name in ("../../a.txt.gz", "..%2f..%2fa.txt.gz", "....//a.txt.gz"):
        place.server.files[name] = b"abc"
    from bushel.files.copies import local_path

    for name in ("../../a.txt.gz", "..%2f..%2fa.txt.gz", "....//a.txt.gz", "..", "?/../.."):
        place.server.files.setdefault(name, b"abc")
        try:
            found = Path(local_path(place.server.url(name)))
        except FileError:
            continue
        assert place.cache in found.resolve().parents
    assert set(tmp_path.iterdir()) - set(before) <= {place.cache}
