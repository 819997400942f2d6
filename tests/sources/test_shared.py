"""Sources in shared memory: what comes back, who can read it, and what is left afterwards."""

import gc
import os
import pickle
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grain
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import bushel
from bushel.errors import ClosedError, PlanError, SourceError
from bushel.sources.arrays.shared import SharedMemoryDataSource
from tests.grain.oracle import difference, outcome
from tests.property.profile import tried

NAMES = Path("/dev/shm")
needs_names = pytest.mark.skipif(not NAMES.is_dir(), reason="names are files on Linux only")


@pytest.fixture
def name() -> Iterator[str]:
    """A name that nobody uses, and that nobody uses afterwards."""
    name = f"bushel-test-{uuid.uuid4().hex[:12]}"
    yield name
    gc.collect()
    assert not is_there(name)


def is_there(name: str) -> bool:
    return (NAMES / name).exists()


def run(program: str, *arguments: str) -> str:
    """Runs a program in a process of its own, which must have nothing to complain about."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def same(expected: Any, actual: Any) -> None:
    assert difference(expected, actual) is None


# What comes back.

DTYPES = st.one_of(
    arrays.scalar_dtypes(),
    arrays.byte_string_dtypes(max_len=4),
    arrays.unicode_string_dtypes(max_len=4),
    arrays.array_dtypes(max_size=2),
)
SCALARS = st.sampled_from(
    [
        np.int8(-3),
        np.uint64(2**64 - 1),
        np.float16(0.5),
        np.bool_(True),
        np.str_("é"),
        np.datetime64(3, "s"),
    ]
)
ELEMENTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters()),  # Lone surrogates included.
    st.binary(),
    SCALARS,
    arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)),
)
LISTS = st.one_of(
    st.lists(ELEMENTS, max_size=12),
    st.lists(st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.floats()),
    st.lists(st.booleans()),
    st.tuples(DTYPES, arrays.array_shapes(max_dims=3, max_side=3)).flatmap(
        lambda kind: st.lists(arrays.arrays(*kind), max_size=5)
    ),
)


def journeys(source: SharedMemoryDataSource) -> Iterator[SharedMemoryDataSource]:
    """The source, and what arrives of it by each way to pickle it."""
    yield source
    for protocol in (2, 4, 5):
        yield pickle.loads(pickle.dumps(source, protocol=protocol))
    buffers: list[Any] = []
    pickled = pickle.dumps(source, protocol=5, buffer_callback=buffers.append)
    yield pickle.loads(pickled, buffers=buffers)


@tried
@given(LISTS)
def test_any_records_come_back_as_they_were(elements: list[Any]) -> None:
    for source in journeys(SharedMemoryDataSource(elements)):
        assert len(source) == len(elements)
        same(elements, [source[key] for key in range(len(elements))])
        same(elements, list(source))
        keys = list(range(-len(elements), len(elements)))
        same([elements[key] for key in keys], source.__getitems__(keys))


TABLES = st.integers(0, 5).flatmap(
    lambda length: st.dictionaries(
        st.text(max_size=3),
        st.tuples(DTYPES, arrays.array_shapes(min_dims=0, max_dims=2, max_side=3)).flatmap(
            lambda kind: arrays.arrays(kind[0], (length, *kind[1]))
        ),
        min_size=1,
        max_size=3,
    )
)


@tried
@given(TABLES)
def test_any_columns_come_back_as_they_were(table: dict[str, Any]) -> None:
    length = len(next(iter(table.values())))
    rows = [{name: column[key] for name, column in table.items()} for key in range(length)]
    for source in journeys(SharedMemoryDataSource(table)):
        same(table, source.columns)
        same(rows, [source[key] for key in range(length)])
        same(rows, source.__getitems__(range(length)))
        same(rows[::-1], source.__getitems__([-1 - key for key in range(length)]))


class Pair(NamedTuple):
    x: Any
    y: Any


@pytest.mark.parametrize(
    "tree",
    [
        np.arange(12).reshape(3, 2, 2),
        (np.arange(3), np.zeros((3, 2))),
        {"a": {"b": np.arange(3)}, "c": (np.ones(3), np.zeros(3, np.uint8))},
        Pair(np.arange(3), np.arange(3.0)),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        {"x": np.arange(12)[::4], "y": np.arange(30).reshape(10, 3)[2:8:2, ::-1]},
        np.arange(3, dtype=">i4"),
    ],
)
def test_columns_may_be_any_tree_of_any_arrays(tree: Any) -> None:
    source = SharedMemoryDataSource(tree)
    same(tree, source.columns)
    expected = list(bushel.MapDataset.source(tree))
    same(expected, list(source))
    same(expected, source.__getitems__([0, 1, 2]))


def test_arrays_of_one_shape_are_one_column() -> None:
    rows = [np.full((2, 3), number) for number in range(4)]
    same(np.stack(rows), SharedMemoryDataSource(rows).columns)
    assert SharedMemoryDataSource([*rows, np.zeros((1, 3))]).columns is None
    assert SharedMemoryDataSource([*rows, 1]).columns is None
    # An entry of a column of numbers would be a scalar, and these are arrays.
    assert SharedMemoryDataSource([np.array(1), np.array(2)]).columns is None


def test_an_element_may_be_large() -> None:
    elements = ["é" * 8_000_000, b"\x00" * 12_000_000, np.arange(2_000_000), 10**5000]
    same(elements, list(SharedMemoryDataSource(elements)))


def test_records_belong_to_whoever_asked() -> None:
    """A map may change its element in place; nobody else sees it."""
    for elements in ([np.zeros(2), np.zeros(3)], [np.zeros(2), np.zeros(2)], np.zeros((2, 2))):
        source = SharedMemoryDataSource(elements)
        for record in (source[0], source.__getitems__([0])[0]):
            record += 1
            same(np.zeros(2), source[0])
    pairs = SharedMemoryDataSource(np.zeros(2, [("a", "i4")]))
    pairs[0]["a"] = 1
    assert pairs[0]["a"] == 0


def test_columns_cannot_be_written_to() -> None:
    for source in journeys(SharedMemoryDataSource(np.zeros((2, 2)))):
        with pytest.raises(ValueError, match="read-only"):
            source.columns[0] = 1
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            source.columns.flags.writeable = True


def test_out_of_band_nothing_is_copied() -> None:
    source = SharedMemoryDataSource({"x": np.arange(100_000)})
    buffers: list[Any] = []
    pickled = pickle.dumps(source, protocol=5, buffer_callback=buffers.append)
    assert len(pickled) < 1000
    arrived = pickle.loads(pickled, buffers=buffers)
    assert np.shares_memory(arrived.columns["x"], source.columns["x"])
    # From memory that could be written to, as an engine may have it, too.
    room = bytearray(buffers[0].raw())
    arrived = pickle.loads(pickled, buffers=[room])
    assert np.shares_memory(arrived.columns["x"], np.frombuffer(room, np.uint8))
    assert not arrived.columns["x"].flags.writeable


def test_it_is_a_source_of_a_dataset() -> None:
    rows = SharedMemoryDataSource([1, 2.5, "a", None])
    assert isinstance(rows, bushel.RandomAccessDataSource)
    assert [bushel.MapDataset.source(rows)[position] for position in range(5)] == [
        1,
        2.5,
        "a",
        None,
        1,
    ]
    table = {"x": np.arange(10), "y": np.arange(20).reshape(10, 2)}
    shared, plain = map(bushel.MapDataset.source, (SharedMemoryDataSource(table), table))
    same(list(plain.shuffle(seed=1).batch(3)), list(shared.shuffle(seed=1).batch(3)))


# As Grain does.

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    # Grain loses NULs at the end, and the end of texts that are longer as bytes.
    st.text(st.characters(codec="ascii", exclude_characters="\x00")),
    st.binary().filter(lambda value: not value.endswith(b"\x00")),
)


def read(source: Any, length: int) -> list[Any]:
    keys: list[Any] = [*range(-length, length + 2), 10**30, "0", None, 0.0, slice(1)]
    if length:
        keys += [np.int64(0), True] if length > 1 else [np.int64(0)]
    return [outcome(lambda key=key: source[key]) for key in keys]


@tried
@given(st.lists(PLAIN, max_size=8))
def test_records_and_errors_are_those_of_grain(elements: list[Any]) -> None:
    theirs = grain.sources.SharedMemoryDataSource(elements)
    try:
        ours = SharedMemoryDataSource(elements)
        assert len(ours) == len(theirs)
        same(read(theirs, len(elements)), read(ours, len(elements)))
        for value in elements:
            assert ours.count(value) == theirs.count(value)
            if value == value:  # NaN is found nowhere.
                assert ours.index(value) == theirs.index(value)
    finally:
        theirs.close()
        theirs.unlink()


@needs_names
def test_it_is_shown_as_in_grain(name: str) -> None:
    elements = [1, 2.5, True, "é", b"x", None]
    theirs = grain.sources.SharedMemoryDataSource(elements, name=name)
    shown = str(theirs), repr(theirs)
    theirs.close()
    theirs.unlink()
    ours = SharedMemoryDataSource(elements, name=name)
    assert (str(ours), repr(ours)) == shown


def test_a_long_one_is_shown_in_short() -> None:
    rows = SharedMemoryDataSource(["a" * 100, np.zeros((2, 3)), *range(100)])
    assert repr(rows) == (
        f"SharedMemoryDataSource(['{'a' * 39}..., float64[2, 3], 0, 1, 2, 3, ...], name=None)"
    )
    columns = SharedMemoryDataSource({"x": np.zeros((2, 3), np.float32)})
    assert repr(columns) == "SharedMemoryDataSource({'x': 'float32[2, 3]'}, name=None)"
    assert columns.format == "{'x': 'float32[2, 3]'}"


# What cannot be.


@pytest.mark.parametrize(
    ("elements", "kind", "message"),
    [
        ([1, lambda: 1], SourceError, "element 1 is a function, which shared memory cannot hold"),
        ([1, 2, [3]], SourceError, "element 2 is a list"),
        ([{"x": 1}], SourceError, "element 0 is a dict"),
        ([Pair(1, 2)], SourceError, "element 0 is a .*Pair"),
        ([np.array([None])], SourceError, "element 0 is an array of Python objects (dtype object)"),
        ([np.ma.masked_array([1], [1])], SourceError, "element 0 is a masked array"),
        ({"x": np.array([{}])}, SourceError, "the column element['x'] is an array of Python obj"),
        ({"x": np.arange(3), "y": np.arange(4)}, PlanError, "element['x']: 3, element['y']: 4"),
        ((np.arange(3), np.arange(4)), PlanError, "For a sequence of arrays, one a record, give a"),
        ({"x": np.array(3)}, PlanError, "element['x']: None"),
        ({"x": np.arange(3), "y": [1, 2, 3]}, SourceError, "element['y'][0] is a int"),
        ({}, SourceError, "has no columns"),
        (5, SourceError, "must be a sequence, and a int is none"),
        (None, PlanError, "is made of elements, or opened by the name"),
    ],
)
def test_what_cannot_be_stored_is_refused(elements: Any, kind: type, message: str) -> None:
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(kind, match=pattern):
        SharedMemoryDataSource(elements)


def test_keys_that_are_none_are_refused() -> None:
    source = SharedMemoryDataSource(["a", "b"])
    for keys in ([0, 2], [-3]):
        with pytest.raises(IndexError, match=f"there is no record {keys[-1]}; there are 2"):
            source.__getitems__(keys)
        with pytest.raises(IndexError, match=f"there is no record {keys[-1]}; there are 2"):
            source[keys[-1]]
    with pytest.raises(TypeError, match="keys must be integers"):
        source.__getitems__([0.5])  # type: ignore[list-item]
    assert source.__getitems__([]) == []
    assert SharedMemoryDataSource({"x": np.zeros(0)}).__getitems__([]) == []


def test_after_closing_nothing_can_be_read() -> None:
    source = SharedMemoryDataSource(np.arange(3))
    column = source.columns
    source.close()
    source.close()
    source.unlink()
    for use in (lambda: source[0], lambda: source.columns, lambda: pickle.dumps(source)):
        with pytest.raises(
            ClosedError, match=r"InMemoryDataSource\(name=None, len=3\) has been cl"
        ):
            use()
    assert repr(source) == "SharedMemoryDataSource(closed, name=None)"
    same(np.arange(3), column)  # What was taken before stays.


# Whose it is.


class _Command:
    """What would be run by whoever unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@needs_names
@pytest.mark.parametrize("uid, mode", [(0, 0o622), (0, 0o660), (54321, 0o644), (54321, 0o600)])
def test_memory_that_others_could_have_written_is_not_looked_at(
    name: str, tmp_path: Path, uid: int, mode: int
) -> None:
    if uid and os.geteuid():
        pytest.skip("only root gives files away")
    harm = pickle.dumps(_Command(tmp_path / "harm"))
    planted = NAMES / name
    planted.write_bytes(b"bushel 1" + len(harm).to_bytes(8, "little") + harm + bytes(64))
    try:
        planted.chmod(mode)
        if uid:
            os.chown(planted, uid, uid)
        with pytest.raises(PermissionError, match=r"belongs to user 54321|may be written by other"):
            SharedMemoryDataSource(name=name)
        with pytest.raises(PermissionError):
            bushel.multiprocessing.SharedMemoryArray.from_metadata(
                bushel.multiprocessing.SharedMemoryArrayMetadata(name, (4,), np.uint8)
            )
    finally:
        planted.unlink()
    assert not (tmp_path / "harm").exists()


@needs_names
def test_memory_of_ours_holds_nothing_that_is_run(name: str, tmp_path: Path) -> None:
    harm = pickle.dumps(_Command(tmp_path / "harm"))
    planted = NAMES / name
    for magic in (b"bushel 1", b"bushel 2"):
        planted.write_bytes(magic + len(harm).to_bytes(8, "little") + harm + bytes(64))
        planted.chmod(0o600)
        try:
            with pytest.raises(SourceError, match=r"does not hold|is damaged"):
                SharedMemoryDataSource(name=name)
        finally:
            planted.unlink()
    assert not (tmp_path / "harm").exists()


@needs_names
def test_damaged_memory_is_an_error_or_other_records_and_nothing_else(name: str) -> None:
    source = SharedMemoryDataSource(["a", b"bc", 7, 2.5, None, np.arange(3.0)], name=name)
    whole = bytearray((NAMES / name).read_bytes())
    del source
    random = np.random.default_rng(3)
    length = int.from_bytes(whole[8:16], "little")
    for _ in range(300):
        data = bytearray(whole)
        for place in random.integers(8, 16 + length, random.integers(1, 4)).tolist():
            data[place] = int(random.integers(256))
        (NAMES / name).write_bytes(data)
        (NAMES / name).chmod(0o600)
        try:
            SharedMemoryDataSource(name=name)
        except SourceError:
            pass
        finally:
            (NAMES / name).unlink()


class _Pair(NamedTuple):
    x: Any
    y: Any


def test_a_named_tuple_of_columns_needs_no_name(name: str) -> None:
    columns = _Pair(np.arange(3), np.arange(3.0))
    source = SharedMemoryDataSource(columns)
    same(_Pair(np.int64(1), np.float64(1)), source[1])
    same(source[2], pickle.loads(pickle.dumps(source))[2])
    with pytest.raises(SourceError, match="here elements is a _Pair"):
        SharedMemoryDataSource(columns, name=name)


def test_types_beside_the_usual_ones(name: str) -> None:
    import ml_dtypes

    columns = {
        "half": np.arange(3).astype(ml_dtypes.bfloat16),
        "struct": np.zeros(3, np.dtype([("a", "u1"), ("b", "<f8", (2,))], align=True)),
        "record": np.rec.fromarrays([np.arange(3), np.arange(3.0)]).view(np.ndarray),
        "time": np.zeros(3, "M8[ns]"),
    }
    source = SharedMemoryDataSource(columns, name=name)
    again = SharedMemoryDataSource(name=name)
    for key, column in columns.items():
        assert again.columns[key].dtype == column.dtype
        assert again.columns[key].tobytes() == column.tobytes()
    assert type(again.columns["record"][0]) is type(columns["record"][0])
    del source
