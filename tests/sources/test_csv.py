"""CSV and TSV: rows as Python's own reader has them, and what goes wrong."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.errors import PlanError, RecordError
from bushel.sources import CsvDataSource
from bushel.sources.text import scan as lines_scan
from tests.property.profile import tried

VALUES = st.sampled_from(["", "1", "a b", 'a "quote"', "two\nlines", "\r\n\r\n", ",", '"', "ü"])
TABLES = st.lists(st.tuples(VALUES, VALUES), max_size=8)


@tried
@given(TABLES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.data())
def test_any_table(
    tmp_path: Path, rows: list[tuple[str, str]], ends: str, header: bool, data: Any
) -> None:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator=ends)
    writer.writerows([("one", "two"), *rows] if header else rows)
    path = tmp_path / "any.csv"
    path.with_name(".any.csv.csv.bushel-index").unlink(missing_ok=True)
    path.write_bytes(written.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_scan, "_CHUNK", data.draw(st.integers(1, 50)))
        source = CsvDataSource(path, has_header=header, names=None)
    expected = [dict(zip(("one", "two"), row, strict=True)) if header else [*row] for row in rows]
    assert [source[key] for key in range(len(source))] == expected
    assert source.__getitems__(range(len(source))) == expected


def table(folder: Path, text: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_blank_lines_do_not_count(tmp_path: Path) -> None:
    source = CsvDataSource(table(tmp_path, "\n\na,b\n\n1,2\r\n\r\n\n3,4\n\n"))
    assert list(source) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert [source.line_of(0, record) for record in range(2)] == [5, 8]


def test_columns(tmp_path: Path) -> None:
    path = table(tmp_path, "x,y,z\n1,2.5,a\n3,4.5,b\n")
    assert CsvDataSource(path).names == ["x", "y", "z"]
    assert CsvDataSource(path, columns=["z", "x"])[0] == {"z": "a", "x": "1"}
    assert CsvDataSource(path, columns={"y": float, "x": int})[1] == {"y": 4.5, "x": 3}
    with pytest.raises(PlanError, match=r"no column 'w'; the columns are \['x', 'y', 'z'\]"):
        CsvDataSource(path, columns=["w"])
    with pytest.raises(PlanError, match=r"give `\['x'\]`"):
        CsvDataSource(path, columns="x")
    with pytest.raises(PlanError, match="`columns` has functions by name, and 'x' has 'float'"):
        CsvDataSource(path, columns={"x": "float"})


def test_without_a_header(tmp_path: Path) -> None:
    path = table(tmp_path, "1,2\n3,4\n")
    assert list(CsvDataSource(path, has_header=False)) == [["1", "2"], ["3", "4"]]
    assert CsvDataSource(path, has_header=False, columns={1: int})[1] == {1: 4}
    named = CsvDataSource(path, has_header=False, names=["a", "b"])
    assert named[0] == {"a": "1", "b": "2"}
    with pytest.raises(PlanError, match="has_header=False"):
        CsvDataSource(path, names=["a", "b"])
    with pytest.raises(RecordError, match=r"row 1 .* has 2 values, and none with the number 7"):
        CsvDataSource(path, has_header=False, columns=[7])[0]


def test_delimiters_and_quotes(tmp_path: Path) -> None:
    tabs = table(tmp_path, "a\tb\n1,5\t2\n", "a.tsv")
    assert CsvDataSource(tabs)[0] == {"a": "1,5", "b": "2"}
    semicolons = table(tmp_path, "a;b\n'x;\ny';2\n")
    assert CsvDataSource(semicolons, delimiter=";", quote="'")[0] == {"a": "x;\ny", "b": "2"}
    inches = table(tmp_path, 'a,b\n5",pipe\n6,"rod\n', "inches.csv")
    assert CsvDataSource(inches, quote=None)[1] == {"a": "6", "b": '"rod'}
    with pytest.raises(PlanError, match="`delimiter` is one ASCII character, and not '::'"):
        CsvDataSource(inches, delimiter="::")


def test_several_files(tmp_path: Path) -> None:
    paths = [
        table(tmp_path, "a,b\n1,2\n", "1.csv"),
        table(tmp_path, "", "2.csv"),
        table(tmp_path, "a,b\n", "3.csv"),
        table(tmp_path, "a,b\n3,4", "4.csv"),
    ]
    assert list(CsvDataSource(paths, columns={"b": int})) == [{"b": 2}, {"b": 4}]
    assert list(CsvDataSource(paths[1])) == []
    other = table(tmp_path, "b,a\n1,2\n", "5.csv")
    with pytest.raises(RecordError, match=r"columns of '.*5\.csv' are \['b', 'a'\], and those"):
        CsvDataSource([*paths, other])


BROKEN = {
    "too few values": ("1,2\n3\n", {}, r"row 3 .* begins at byte 8, has 1 value, and there are 2"),
    "too many values": ("1,2\n3,4,5\n", {}, "row 3 .* has 3 values"),
    "no number": ("1,2\nx,4\n", {"columns": {"a": int}}, r"row 3 .* has 'x' in column 'a': inv"),
    "a quote that quotes nothing": ('1,2\n5",x\n6",y\n', {}, "row 3 .* no row of CSV.*quote=None"),
    "a quote within": ('1,2\nx"y,"z\n', {}, "row 3 .* no row of CSV: a quoted value does not end"),
}


@pytest.mark.parametrize(("text", "options", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_rows_that_are_wrong(tmp_path: Path, text: str, options: Any, words: str) -> None:
    source = CsvDataSource(table(tmp_path, "a,b\n" + text), **options)
    assert next(iter(source[0])) == "a"
    with pytest.raises(RecordError, match=words):
        source.__getitems__([0, 1])
    with pytest.raises(RecordError, match=words):
        source[1]


def test_a_quote_without_end(tmp_path: Path) -> None:
    path = table(tmp_path, 'a,b\n1,2\n"3,4\n5,6\n')
    with pytest.raises(RecordError, match=r"odd number of quotes: the row that begins at byte 8"):
        CsvDataSource(path)


def test_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(RecordError, match=r"row 2 .* is no text in utf-8: .* at byte 6"):
        CsvDataSource(path)[0]


def test_names_that_are_twice_there(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="names a column twice"):
        CsvDataSource(table(tmp_path, "a,a\n1,2\n"))


def test_carriage_returns_alone(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"the header of .* is no row of CSV: .*carriage return"):
        CsvDataSource(table(tmp_path, "a,b\r1,2\r3,4\r"))


def test_values_beyond_the_limit_of_the_reader(tmp_path: Path) -> None:
    huge = "x" * (csv.field_size_limit() + 1)
    source = CsvDataSource(table(tmp_path, f"a,b\n1,{huge}\n"))
    assert source[0] == {"a": "1", "b": huge}
