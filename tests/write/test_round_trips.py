"""What is written is read again as it was: every format, every kind of element that it holds."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bushel
from bushel import MapDataset
from bushel.core.tree import leaves_with_paths
from bushel.errors import FileError, PlanError
from bushel.sources.written.coding import coding_of
from bushel.sources.written.element_layout import ElementLayout, MisfitError, layout_of
from tests.property.profile import tried
from tests.thorough import examples

FORMATS = ("arrayrecord", "tfrecord", "parquet", "arrow", "tar", "jsonl", "tokens")
RECORDS = tuple(name for name in FORMATS if name != "tokens")


def assert_same(one: Any, other: Any) -> None:
    """Equal, with the same types everywhere."""
    ones, others = list(leaves_with_paths(one)), list(leaves_with_paths(other))
    assert [path for path, _ in ones] == [path for path, _ in others]
    assert type(one) is type(other)
    for (_, a), (_, b) in zip(ones, others, strict=True):
        assert type(a) is type(b)
        if isinstance(a, (np.ndarray, np.generic)):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        else:
            assert a == b


def written_and_read(elements: list[Any], format: str, **options: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        ds = MapDataset.range(len(elements)).map(lambda number: elements[number])
        to = f"{folder}/out/train-*.{format}"
        ds.write(to, format=format, shards=2, workers=0, **options)
        source = bushel.open(f"{folder}/out", verify=True)
        return [source[key] for key in range(len(source))]


NUMBERS = ("?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NAMES = st.text("abcXYZ_/. -é", min_size=1, max_size=5)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def field_values(kind: str, count: int) -> Any:
    """Values of one field of so many elements."""
    plain: dict[str, Any] = {
        "int": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(allow_nan=False, allow_infinity=False),
        "bool": st.booleans(),
        "text": TEXT,
        "bytes": st.binary(max_size=6),
        # Never one kind alone, which would not be JSON.
        "json": st.lists(JSON, max_size=3),
    }
    if kind in plain:
        return st.lists(plain[kind], min_size=count, max_size=count)
    name, _, dtype = kind.partition(" ")
    finite = {"allow_nan": False, "allow_infinity": False} if "f" in dtype else {}
    values = hnp.from_dtype(np.dtype(dtype), **finite)
    if name == "scalar":
        return st.lists(values, min_size=count, max_size=count)
    shapes = st.integers(0, 3).flatmap(
        lambda ndim: st.lists(
            hnp.array_shapes(min_dims=ndim, max_dims=ndim, min_side=1, max_side=3)
            if ndim != 1
            else st.tuples(st.integers(0, 4)),
            min_size=count,
            max_size=count,
        )
    )
    return shapes.flatmap(
        lambda chosen: st.tuples(*(hnp.arrays(dtype, shape, elements=values) for shape in chosen))
    )


KINDS = st.sampled_from(
    ["int", "float", "bool", "text", "bytes", "json"]
    + [f"{kind} {dtype}" for kind in ("array", "scalar") for dtype in NUMBERS]
)


@st.composite
def datasets(draw: st.DrawFn) -> list[Any]:
    count = draw(st.integers(1, 3))
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower))
    columns = [draw(field_values(draw(KINDS), count)) for _ in names]
    rows = [tuple(column[row] for column in columns) for row in range(count)]
    form = draw(st.sampled_from(["dict", "nested", "tuple", "one"]))
    if form == "one":
        return [row[0] for row in rows]
    if form == "tuple":
        return list(rows)
    named = [dict(zip(names, row, strict=True)) for row in rows]
    return named if form == "dict" else [{"outer": (inner, 1), "n": 2} for inner in named]


@pytest.mark.parametrize("format", RECORDS)
@settings(tried, max_examples=examples(6))
@given(elements=datasets())
def test_elements_are_read_as_they_were(format: str, elements: list[Any]) -> None:
    try:
        layout = layout_of(elements)
        coding = coding_of(format, layout)
        records = [coding.encode(element, 0) for element in elements]
    except (MisfitError, PlanError) as refused:
        # Names that would be the same in a file, or those that it cannot have.
        assert "would be" in str(refused) or "shape" in str(refused) or "begin" in str(refused)
        return
    assert records
    again = coding_of(format, ElementLayout.from_json(layout.to_json(), "test"))
    for one, other in zip(written_and_read(elements, format), elements, strict=True):
        assert_same(one, other)
    assert again.columns == coding.columns


@pytest.mark.parametrize("dtype", ["<u2", "<i4", ">i8", "u1"])
def test_tokens_are_read_as_they_were(dtype: str) -> None:
    elements = [np.arange(n, dtype=dtype) for n in (3, 0, 7, 1)]
    for one, other in zip(written_and_read(elements, "tokens"), elements, strict=True):
        assert_same(one, other)
    named = [{"tokens": array} for array in elements]
    for one, other in zip(written_and_read(named, "tokens"), named, strict=True):
        assert_same(one, other)


def test_token_files_are_nothing_but_tokens(tmp_path: Path) -> None:
    """So the source of windows reads them, and everybody else does."""
    ds = MapDataset.source([2, 3, 5]).map(lambda n: np.arange(n, dtype=np.uint16))
    written = ds.write(tmp_path / "tokens.bin", workers=0)
    assert np.fromfile(written.paths[0], np.uint16).tolist() == [0, 1, 0, 1, 2, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("format", RECORDS)
def test_no_element_at_all(format: str, tmp_path: Path) -> None:
    for number, ds in enumerate([MapDataset.range(0), MapDataset.range(5).filter(lambda x: x > 9)]):
        written = ds.write(tmp_path / f"{number}-*.{format}", format=format, workers=0)
        assert written.records == 0 and not written.shards
        assert len(bushel.open(tmp_path / f"{number}-*.{format}")) == 0


@pytest.mark.parametrize("format", RECORDS)
def test_more_shards_than_records(format: str, tmp_path: Path) -> None:
    ds = MapDataset.range(3).map(lambda x: {"x": x})
    written = ds.write(tmp_path / f"a-*.{format}", format=format, shards=7, workers=0)
    assert len(written.shards) == 7 and len(list(tmp_path.glob("a-*-of-00007*"))) == 7
    source = bushel.open(tmp_path)
    assert [source[key] for key in range(len(source))] == list(ds)


REFUSED: list[tuple[str, Any, str]] = [
    ("parquet", {"x": np.array(["a"])}, "'x' is array of <U1, 1 axis, which a table cannot hold"),
    ("arrow", {"x": 2**70}, f"'x' is {2**70}, which is no 64-bit integer"),
    ("tfrecord", {"x": np.array([1j])}, "'x' is array of complex128, 1 axis, which an Example"),
    ("arrayrecord", {"x": {"y": object()}}, "'x/y' is an object, and elements are made of arrays"),
    ("jsonl", {"x": np.array([np.nan])}, "'x' has nan or inf in it, which JSON cannot say"),
    ("jsonl", {"x": np.zeros((0, 3))}, "'x' has the shape (0, 3), which lists cannot say"),
    ("jsonl", {"x": float("inf")}, "'x' is inf, which JSON cannot say"),
    ("tar", {"a": 1, "A": 2}, "'A' would be 'A.cls' in a tar file, as another field is"),
    ("tar", {}, "the element has no field, and a sample of a tar file without files is none"),
    ("tar", {"x": "\ud800"}, "'x' is text that UTF-8 cannot say"),
    ("tokens", {"x": 1, "y": 2}, "a file of tokens holds one array with one axis"),
    ("tokens", np.zeros(3), "tokens are whole numbers"),
    ("parquet", {1: 2}, "the element has the key 1, and fields go by names"),
    ("parquet", {"x": [np.zeros(2)]}, "'x' is a list of what JSON cannot say"),
    ("arrayrecord", {"x": np.ma.array([1, 2], mask=[0, 1])}, "'x' is a masked array"),
    ("jsonl", {"x": np.zeros(2, np.longdouble)}, "which JSON cannot hold"),
    ("arrow", {"x": np.zeros(2, np.longdouble)}, "which a table cannot hold"),
    ("arrow", {"w\udcff": 1}, "'w\\udcff' is a name that UTF-8 cannot say"),
    ("tfrecord", {"w\udcff": 1}, "'w\\udcff' is a name that UTF-8 cannot say"),
    ("tar", {"a\0b": 1}, "'a\\x00b' has a name that a tar file cannot have"),
]


@pytest.mark.parametrize(("format", "element", "words"), REFUSED)
def test_what_a_format_cannot_hold(format: str, element: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as refused:
        MapDataset.range(2).map(lambda _: element).write(
            tmp_path / f"a-*.{format}", format=format, workers=0
        )
    assert words in str(refused.value) and "cannot be written as" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_fields_that_differ(tmp_path: Path) -> None:
    """What the first elements have as text may be None later on."""
    texts = MapDataset.range(40).map(lambda n: {"n": n, "text": None if n == 30 else "a"})
    with pytest.raises(PlanError, match="'text' is None here, and text elsewhere") as refused:
        texts.write(tmp_path / "a-*.parquet", shards=2, workers=0)
    assert any("in shard 1 of 2, element 30" in note for note in refused.value.__notes__)
    texts.write(tmp_path / "a-*.parquet", shards=2, workers=0, overwrite=True, json_fields=["text"])
    source = bushel.open(tmp_path)
    assert [source[30], source[31]] == [{"n": 30, "text": None}, {"n": 31, "text": "a"}]
    skipped = texts.write(tmp_path / "b-*.parquet", shards=2, workers=0, on_error="skip")
    assert skipped.records == 39 and skipped.bad == 1


def test_lines_of_any_json(tmp_path: Path) -> None:
    values: list[Any] = [{"a": 1}, {"b": [None, {"c": 1.5}]}, {}]
    MapDataset.range(3).map(lambda n: values[n]).write(tmp_path / "a.jsonl", workers=0)
    assert (tmp_path / "a.jsonl").read_text() == '{"a":1}\n{"b":[null,{"c":1.5}]}\n{}\n'
    assert list(MapDataset.source(bushel.open(tmp_path))) == values
    with pytest.raises(PlanError, match="'a' is in some elements only"):
        MapDataset.range(3).map(lambda n: values[n]).write(tmp_path / "b.parquet", workers=0)


def test_batches_are_elements(tmp_path: Path) -> None:
    ds = MapDataset.range(10).map(lambda n: {"n": n}).batch(4)
    ds.write(tmp_path / "a-*.arrow", workers=0)
    assert [batch["n"].tolist() for batch in MapDataset.source(bushel.open(tmp_path))] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        {"tree": 0, "fields": []},
        {"tree": ["dict", [["a", 0]]], "fields": [{"path": ["a"], "kind": "code"}]},
        {"tree": 0, "fields": [{"path": [], "kind": "array", "dtype": "|O", "ndim": 1}]},
        {"tree": 0, "fields": [{"path": [], "kind": "array", "dtype": "<i8", "ndim": -1}]},
        {"tree": ["set", []], "fields": []},
    ],
)
def test_layouts_that_are_none(told: Any) -> None:
    with pytest.raises(FileError, match="the description of elements in test is damaged"):
        ElementLayout.from_json(told, "test")
