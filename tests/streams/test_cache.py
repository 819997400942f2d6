"""`cache`: bounded in memory; on disk whole or not there, and never seen in a state."""

import json
import os
import resource
import signal
import struct
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import IterDataset, MapDataset, ReadOptions
from bushel.errors import BatchError, FileError, PlanError, StateError
from bushel.experimental import RepeatIterDataset
from bushel.files.elements import Encoder, decode
from tests.contract.events import freeze, pull_events
from tests.contract.test_schedules import walk
from tests.patience import PATIENCE_SECONDS
from tests.property.profile import tried
from tests.streams.compare import assert_resumes, states_of, through_json


def _counted(size: int) -> tuple[IterDataset[Any], list[int]]:
    """A stream, and the elements that were computed."""
    computed: list[int] = []

    def compute(number: int) -> Any:
        computed.append(number)
        return {"x": np.arange(number % 4), "name": f"n{number}", "at": (number, None, b"y")}

    ds = MapDataset.range(size).to_iter_dataset(ReadOptions(0, 0)).map(compute)
    return ds.filter(lambda element: element["at"][0] % 5 != 3), computed


def _same(one: Any, other: Any) -> None:
    assert [freeze(element) for element in one] == [freeze(element) for element in other]


# In memory.


def test_what_is_beyond_the_bound_is_computed_each_time() -> None:
    ds, computed = _counted(40)
    expected = list(ds)
    computed.clear()
    repeated = RepeatIterDataset(ds.cache(max_bytes=4000), 3)
    _same(list(repeated), expected * 3)
    assert 40 < len(computed) < 3 * 40
    assert computed.count(0) == 1 and computed.count(39) == 3


@pytest.mark.parametrize("size", [2, 5, 64])
def test_what_is_remembered_does_not_depend_on_blocks(size: int) -> None:
    ds, computed = _counted(40)
    stream = RepeatIterDataset(ds.cache(max_bytes=4000), 2)
    pull_events(stream, [1] * 2000)
    one_by_one = sorted(computed)
    computed.clear()
    pull_events(stream, [size] * 2000)
    assert sorted(computed) == one_by_one


@tried
@given(st.integers(0, 20), st.integers(1, 6000), st.integers(0, 2**32 - 1))
def test_a_bound_does_not_show(size: int, bound: int, seed: int) -> None:
    ds, _ = _counted(size)
    repeated = RepeatIterDataset(ds.cache(max_bytes=bound), 2)
    assert_resumes(repeated, list(RepeatIterDataset(ds, 2)))
    walk(repeated, pull_events(repeated, [1] * 2000), seed)


# On disk.


def test_it_is_computed_once(tmp_path: Path) -> None:
    ds, computed = _counted(30)
    expected = list(ds)
    computed.clear()
    cached = ds.cache(tmp_path / "kept")
    _same(list(RepeatIterDataset(cached, 2)), expected * 2)
    _same(list(cached), expected)
    _same(list(ds.cache(tmp_path / "kept")), expected)
    assert computed == list(range(30))
    assert os.listdir(tmp_path) == ["kept"]


@tried
@given(st.integers(0, 20), st.data())
def test_states_are_the_same_with_and_without_a_file(size: int, data: st.DataObject) -> None:
    ds, _ = _counted(size)
    expected = list(ds)
    with TemporaryDirectory() as folder:
        path = Path(folder, "kept")
        cached = ds.cache(path)
        states = states_of(cached)
        assert states == states_of(cached)
        assert states == states_of(ds.cache())
        assert path.exists()
        assert_resumes(RepeatIterDataset(cached, 2), expected * 2)
        at = data.draw(st.integers(0, len(expected)))
        if data.draw(st.booleans()):
            path.unlink()
        with closing(iter(cached)) as iterator:
            iterator.set_state(states[at])
            _same(list(iterator), expected[at:])


@tried
@given(st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_the_same_however_it_runs(size: int, seed: int) -> None:
    ds, _ = _counted(size)
    expected = pull_events(RepeatIterDataset(ds.cache(), 2), [1] * 2000)
    with TemporaryDirectory() as folder:
        walk(RepeatIterDataset(ds.cache(Path(folder, "kept")), 2), expected, seed)


def test_one_of_two_iterators_writes(tmp_path: Path) -> None:
    ds, _ = _counted(20)
    expected = list(ds)
    cached = ds.cache(tmp_path / "kept")
    with closing(iter(cached)) as one, closing(iter(cached)) as other:
        first = [next(one), next(other), *other]
        _same(first, [expected[0], *expected])
        assert not (tmp_path / "kept").exists()
        _same(list(one), expected[1:])
        assert (tmp_path / "kept").exists()


def test_half_of_a_stream_leaves_nothing(tmp_path: Path) -> None:
    cached = _counted(20)[0].cache(tmp_path / "kept")
    with closing(iter(cached)) as iterator:
        next(iterator)
    iterator = iter(cached)
    next(iterator)
    del iterator
    assert os.listdir(tmp_path) == []


_KILLED = """
import os, signal, sys
from bushel import MapDataset

def number(x):
    if x == 15:
        os.kill(os.getpid(), signal.SIGKILL)
    return x

for _ in MapDataset.range(20).to_iter_dataset().map(number).cache(sys.argv[1]):
    pass
"""


def test_a_writer_that_is_killed_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    died = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path)], timeout=PATIENCE_SECONDS, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert not path.exists()
    cached = _counted(20)[0].cache(path)
    _same(list(cached), list(_counted(20)[0]))
    assert os.listdir(tmp_path) == ["kept"]


def test_another_pipeline_is_refused(tmp_path: Path) -> None:
    list(MapDataset.range(5).to_iter_dataset().map(abs).cache(tmp_path / "kept"))
    with pytest.raises(PlanError, match=r"made by another pipeline: step 1 was `range"):
        list(MapDataset.range(6).to_iter_dataset().map(abs).cache(tmp_path / "kept"))


def test_another_function_is_refused(tmp_path: Path) -> None:
    stream = MapDataset.range(5).to_iter_dataset()
    list(stream.map(lambda x: x + 1).cache(tmp_path / "kept"))
    with pytest.raises(PlanError, match="before a function of the pipeline was changed: <lambda>"):
        list(stream.map(lambda x: x + 2).cache(tmp_path / "kept"))
    # The same one written again is the same.
    assert list(stream.map(lambda x: x + 1).cache(tmp_path / "kept")) == [1, 2, 3, 4, 5]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_bytes(b"something of the user's own, long enough")
    with pytest.raises(FileError, match="is no cache of bushel"):
        list(MapDataset.range(5).to_iter_dataset().cache(path))
    assert path.read_bytes().startswith(b"something")


@pytest.mark.parametrize("where", [30, 60, -1, -12, -40])
def test_a_damaged_file_is_noticed(tmp_path: Path, where: int) -> None:
    path = tmp_path / "kept"
    ds = _counted(20)[0].cache(path)
    list(ds)
    data = bytearray(path.read_bytes())
    data[where] ^= 255
    path.write_bytes(data)
    with pytest.raises((FileError, PlanError, StateError)):
        list(ds)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FileError, match="remove it, and it is made again"):
        list(ds)


@pytest.mark.parametrize("position", [0, 0.4, 0.8, 0.99])
def test_no_bit_of_a_file_may_change(tmp_path: Path, position: float) -> None:
    path = tmp_path / "kept"
    ds = _counted(20)[0].cache(path)
    list(ds)
    whole = path.read_bytes()
    start = int(position * len(whole))
    for at in range(start, min(start + 40, len(whole))):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with (
            pytest.raises(FileError, match=r"is damaged|is no cache of bushel"),
            closing(iter(ds)) as iterator,
        ):
            list(iterator)


def _forged(whole: bytes, blocks: list[tuple[Any, Any, bytes]]) -> bytes:
    """A file with other blocks, each with an offset, a count and its bytes; all checks hold."""
    length, _, end = struct.unpack("<QL8s", whole[-20:])
    footer = json.loads(whole[-20 - length : -20])
    footer["blocks"] = [(offset, count, zlib.crc32(data)) for offset, count, data in blocks]
    told = json.dumps(footer).encode()
    body = whole[:8] + b"".join(data for _, _, data in blocks)
    return body + told + struct.pack("<QL8s", len(told), zlib.crc32(told), end)


def _block(description: Any, states: int = 1) -> bytes:
    told, data = json.dumps(description).encode(), bytes(64)
    packed = zlib.compress(json.dumps([{"next_index": 1}] * states).encode())
    return struct.pack("<QQQ", len(told), len(data), len(packed)) + told + data + packed


def _row(shape: Any, *values: Any) -> bytes:
    return _block({"shapes": [shape], "rows": [[0, values]]})


@pytest.mark.parametrize(
    "block",
    [
        (8, 1, _row(["a|O"], [0, 2])),
        (8, 1, _row(["a|O"], [0, 0])),
        (8, 1, _row(["a<i8"], [0, 1 << 40])),
        (8, 1, _row(["a<i8"], [0, -1])),
        (8, 1, _row(["a<i8"], [64, 1])),
        (8, 1, _row(["a<i8"], [-8, 1])),
        (8, 1, _row("i")),
        (8, 1, _row(["d", ["a", "b"], ["i"]], 1)),
        (8, 1, _block({"shapes": [], "rows": [[3, []]]})),
        (8, 1, _block([])),
        (8, 1, _block({"shapes": ["i"], "rows": []})),
        (8, 10**18, _row("i", 1)),
        (8, -1, _row("i", 1)),
        (8, 0, _row("i", 1)),
        (8, 1.5, _row("i", 1)),
        (-8, 1, _row("i", 1)),
        (10**30, 1, _row("i", 1)),
        ("8", 1, _row("i", 1)),
    ],
)
def test_a_forged_file_does_no_harm(tmp_path: Path, block: tuple[Any, Any, bytes]) -> None:
    path = tmp_path / "kept"
    ds = MapDataset.range(1).to_iter_dataset().cache(path)
    list(ds)
    whole = path.read_bytes()
    path.write_bytes(_forged(whole, [(8, 1, _row("i", 7))]))
    assert list(ds) == [7]
    path.write_bytes(_forged(whole, [block]))
    with pytest.raises(FileError, match=r"is damaged from byte \d+ on: remove it"):
        list(ds)


def test_states_that_are_missing_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    ds = MapDataset.range(1).to_iter_dataset().cache(path)
    list(ds)
    block = _block({"shapes": ["i"], "rows": [[0, [7]]]}, states=0)
    path.write_bytes(_forged(path.read_bytes(), [(8, 1, block)]))
    iterator = iter(ds)
    assert next(iterator) == 7
    with pytest.raises(FileError, match=r"is damaged from byte \d+ on: remove it"):
        iterator.get_state()


class Odd:
    """A class of the user's own."""


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (Odd(), "element is a Odd"),
        ({"a": [1, {2, 3}]}, r"element\['a'\]\[1\] is a set"),
        (np.array([Odd()]), "an array of type object"),
        ({(1, 2): 3}, r"a dict with the key \(1, 2\)"),
        ([10**5000], r"element\[0\] is a number of 16,610 bits"),
    ],
)
def test_elements_that_are_refused(tmp_path: Path, element: Any, message: str) -> None:
    ds = MapDataset.range(3).to_iter_dataset().map(lambda _: element).cache(tmp_path / "kept")
    with closing(iter(ds)) as iterator:
        for _ in range(2):
            with pytest.raises(BatchError, match=message):
                next(iterator)
    assert os.listdir(tmp_path) == []


def test_what_is_too_large_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ds, computed = _counted(30)
    expected = list(ds)
    computed.clear()
    repeated = RepeatIterDataset(ds.cache(tmp_path / "kept", max_bytes=1000), 3)
    _same(list(repeated), expected * 3)
    assert computed == list(range(30)) * 3
    assert os.listdir(tmp_path) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"`cache('{tmp_path}/kept')`: nothing is kept, because it is larger than max_bytes=1,000."
    ]


def test_text_counts_before_it_is_written(tmp_path: Path) -> None:
    seen = []

    def text(number: int) -> str:
        seen.append(os.listdir(tmp_path))
        return "x" * 1000

    stream = MapDataset.range(50).to_iter_dataset(ReadOptions(0, 0)).map(text)
    with closing(iter(stream.cache(tmp_path / "kept", max_bytes=5000))) as iterator:
        assert [len(next(iterator)) for _ in range(50)] == [1000] * 50
    # It was given up soon, and not when a block of many elements was full.
    assert seen[2] == ["kept.partial"] and seen[40] == []


def test_a_disk_that_is_full(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ds, path = MapDataset.range(200).to_iter_dataset().map(lambda x: np.full(3000, x)), "kept"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handled = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, limits[1]))
        assert [int(row[0]) for row in ds.cache(tmp_path / path)] == list(range(200))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handled)
    assert os.listdir(tmp_path) == []
    assert "nothing is kept, because it cannot be written" in caplog.text


def test_what_fails_is_not_kept(tmp_path: Path) -> None:
    ds = MapDataset.range(4).to_iter_dataset().map(lambda x: 1 // (x - 2)).cache(tmp_path / "kept")
    for _ in range(2):
        with closing(iter(ds)) as iterator:
            assert [next(iterator), next(iterator)] == [-1, -1]
            with pytest.raises(ZeroDivisionError):
                next(iterator)
            assert list(iterator) == [1]
    assert os.listdir(tmp_path) == []


def test_elements_can_be_changed(tmp_path: Path) -> None:
    ds = MapDataset.range(4).to_iter_dataset().map(lambda x: np.full(3, x))
    cached = ds.cache(tmp_path / "kept")
    for _ in range(3):
        for at, element in enumerate(cached):
            assert element.tolist() == [at] * 3
            element += 100


def test_each_lane_has_a_file(tmp_path: Path) -> None:
    ds = MapDataset.range(16).lanes(2).filter(lambda x: x % 3).cache(tmp_path / "kept").batch(2)
    expected = [batch.tolist() for batch in ds]
    assert [batch.tolist() for batch in ds] == expected
    plain = MapDataset.range(16).lanes(2).filter(lambda x: x % 3).batch(2)
    assert [batch.tolist() for batch in plain] == expected


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    stream = MapDataset.range(4).to_iter_dataset()
    with pytest.raises(PlanError, match="there is no folder"):
        stream.cache(tmp_path / "missing" / "kept")
    with pytest.raises(PlanError, match="is a folder"):
        stream.cache(tmp_path)
    with pytest.raises(PlanError, match="max_bytes must be positive"):
        stream.cache(max_bytes=0)


def test_a_state_beyond_the_file(tmp_path: Path) -> None:
    cached = MapDataset.range(4).to_iter_dataset().cache(tmp_path / "kept")
    list(cached)
    with closing(iter(cached)) as iterator:
        state = through_json(iterator.get_state())
        with pytest.raises(StateError, match="'position' is 9, and only 0 elements came before"):
            iterator.set_state({**state, "position": 9})


# Elements as bytes.

_numbers = st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans())
_arrays = st.tuples(
    st.sampled_from(["i1", "<i4", ">i8", "f4", "c8", "?", "U3", "S2", "M8[s]"]),
    st.lists(st.integers(0, 3), max_size=3),
).map(lambda drawn: np.zeros(drawn[1], drawn[0]))
_leaves = st.one_of(
    st.none(),
    _numbers,
    st.text(),
    st.binary(),
    _arrays,
    _arrays.map(lambda a: np.zeros((), a.dtype)[()]),
)
_trees = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)


@tried
@given(st.lists(_trees, max_size=6))
def test_elements_come_back_as_they_were(elements: list[Any]) -> None:
    encoder = Encoder()
    for element in elements:
        encoder.add(element)
    made = decode(*encoder.parts())
    _same(made, elements)
    assert [repr(element) for element in made] == [repr(element) for element in elements]


@pytest.mark.parametrize("text", [np.bytes_(b""), np.str_("")])
def test_texts_of_no_bytes_come_back_empty(text: Any) -> None:
    encoder = Encoder()
    encoder.add(text)
    # numpy hands out memory of this size again as it was left.
    left = [np.full(text.dtype.alignment, 0x41, np.uint8) for _ in range(50)]
    del left
    assert decode(*encoder.parts()) == [text]


def test_a_file_of_version_0_1_0_is_read(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "stream-cache-0.1.0"
    (tmp_path / "kept").write_bytes(golden.read_bytes())
    batches = MapDataset.range(7).batch(3, drop_remainder=False).to_iter_dataset()
    cached = batches.cache(tmp_path / "kept")
    assert [batch.tolist() for batch in cached] == [[0, 1, 2], [3, 4, 5], [6]]
    assert (tmp_path / "kept").read_bytes() == golden.read_bytes()
