"""The file of `cache(path)`: killed writers, forked ones, and going back while it is read."""

import os
from pathlib import Path

from bushel.dataset.stream import stream_node
from bushel.deliver.open import open_stream
from tests.files.forks import true_in_a_fork
from tests.streams.test_cache import _counted, _same


def test_a_longer_file_that_a_killed_process_left_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    (tmp_path / "kept.partial").write_bytes(os.urandom(1 << 16))
    ds, computed = _counted(40)
    expected = list(ds)
    _same(list(ds.cache(str(path))), expected)
    computed.clear()
    _same(list(ds.cache(str(path))), expected)
    assert computed == []


def test_a_forked_process_that_closes_leaves_the_file_to_its_parent(tmp_path: Path) -> None:
    ds, _ = _counted(40)
    expected = list(ds)
    iterator = iter(ds.cache(str(tmp_path / "kept")))
    taken = [next(iterator)]

    def closed() -> bool:
        iterator.close()
        return True

    assert true_in_a_fork(closed)
    _same([*taken, *iterator], expected)
    assert os.listdir(tmp_path) == ["kept"]


def test_going_back_within_what_was_read_of_a_file(tmp_path: Path) -> None:
    ds, _ = _counted(40)
    kept = ds.cache(str(tmp_path / "kept"))
    expected = list(kept)
    stream = open_stream(stream_node(kept))
    begin = stream.state()
    rows = []
    for _ in range(3):
        chunk = stream.pull(2)
        assert chunk is not None
        rows += chunk.block.rows()
    _same(rows, expected[:6])
    stream.restore(begin)
    again = stream.pull(4)
    assert again is not None
    _same(again.block.rows(), expected[:4])
    stream.close()
