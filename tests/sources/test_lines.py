"""Text and JSON by lines: where lines begin, and what goes wrong."""

import bz2
import gzip
import json
import lzma
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.errors import FileError, MissingFileError, PlanError, RecordError
from bushel.files.local import LocalFile
from bushel.files.progress_line import ProgressLine
from bushel.sources import JsonLinesDataSource, TextLinesDataSource
from bushel.sources import parallel_search as scan_chunks
from bushel.sources.text import scan as lines_scan
from tests.patience import PATIENCE_SECONDS
from tests.property.profile import tried


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("BUSHEL_CACHE", str(folder))
    return folder


def without_indexes(folder: Path) -> None:
    for file in folder.glob(".*.bushel-index"):
        file.unlink()


# Text.


@tried
@given(st.lists(st.sampled_from(["", "a", "zwölf", " ", "x" * 50, "\t", "\r"])), st.data())
def test_any_lines(tmp_path: Path, lines: list[str], data: Any) -> None:
    ends = data.draw(st.sampled_from(["\n", "\r\n"]))
    last = data.draw(st.booleans())
    text = ends.join(lines) + (ends if last else "")
    expected = re.split(r"\r?\n", text)
    if not expected[-1]:
        expected.pop()
    path = tmp_path / "any.txt"
    without_indexes(tmp_path)
    path.write_bytes(data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_scan, "_CHUNK", data.draw(st.integers(1, 100)))
        assert list(TextLinesDataSource(path)) == expected


@tried
@given(st.lists(st.booleans(), max_size=300), st.integers(1, 100))
def test_places_of_what_is_true(near: list[bool], apart: int) -> None:
    """Many close together are looked for in another way than a few far apart."""
    hits = np.zeros(len(near) * apart, bool)
    hits[::apart] = near
    expected = [place for place, hit in enumerate(hits.tolist()) if hit]
    assert scan_chunks.places_of(hits).tolist() == expected


def test_a_file_that_is_cut_short_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"line\n" * 100)
    file = LocalFile(str(path))
    os.truncate(path, 42)
    with (
        ProgressLine("looking", file.size) as progress,
        pytest.raises(FileError, match=r"ends at byte 42, and bytes .* to 500 were wanted"),
    ):
        lines_scan.scan_lines(file, progress)


def test_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("grün\nrot\n".encode("latin-1"))
    assert TextLinesDataSource(path, encoding="latin-1")[0] == "grün"
    assert TextLinesDataSource(path, encoding=None)[0] == b"gr\xfcn"
    source = TextLinesDataSource(path)
    assert source[1] == "rot"
    words = rf"line 1 of '{path}', which begins at byte 0, is no text in utf-8: .* byte 2 .*\(fc"
    with pytest.raises(RecordError, match=words):
        source.__getitems__([1, 0])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "no-such", "rot13"])
def test_encodings_without_lines(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(PlanError, match=f"{encoding}"):
        TextLinesDataSource(tmp_path, encoding=encoding)


def test_a_huge_line(tmp_path: Path) -> None:
    huge = "x" * (1 << 24) + "y"
    (tmp_path / "a.txt").write_text(f"a\n{huge}\nb")
    source = TextLinesDataSource(tmp_path)
    assert len(source) == 3
    assert source.__getitems__([2, 1, 0]) == ["b", huge, "a"]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"has no file that ends in \.txt"):
        TextLinesDataSource(tmp_path)
    with pytest.raises(MissingFileError, match=r"there is no file '.*b\.txt'"):
        TextLinesDataSource(tmp_path / "b.txt")
    with pytest.raises(PlanError, match="at least one file"):
        TextLinesDataSource([])
    (tmp_path / "empty.txt").touch()
    assert len(TextLinesDataSource(tmp_path / "empty.txt")) == 0


# JSON.

BLANK = ["", " ", "\t \r", "   " * 30]


@tried
@given(st.lists(st.sampled_from(["1", '{"a": "ü"}', " [2]", *BLANK])), st.booleans(), st.data())
def test_blank_lines_do_not_count(tmp_path: Path, lines: list[str], last: bool, data: Any) -> None:
    path = tmp_path / "any.jsonl"
    without_indexes(tmp_path)
    path.write_text("\n".join(lines) + ("\n" if last else ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_scan, "_CHUNK", data.draw(st.integers(1, 60)))
        source = JsonLinesDataSource(path)
    kept = [number for number, line in enumerate(lines, 1) if line.strip()]
    assert [source[key] for key in range(len(source))] == [
        json.loads(lines[number - 1]) for number in kept
    ]
    # Messages count all lines.
    assert [source.line_of(0, record) for record in range(len(source))] == kept


BROKEN = {
    "a word": (b"[1, ...]", r"line 3 .* byte 5, is no JSON: .* byte 9 .* '\[1, \.\.\.\]'"),
    "two values": (b"1 2", "line 3 .*Extra data at byte 7"),
    "no text": (b'"\xff"', r"line 3 .*is no text in utf-8: .* at byte 6 "),
    "letters before it": ('"ü" !'.encode(), "Extra data at byte 10"),
    "too deep": (b"[" * 100_000 + b"]" * 100_000, "line 3 .* nested too deeply"),
    "too many digits": (b"1" * 5000, "line 3 .*cannot be read: .*digits"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_lines_that_are_no_json(tmp_path: Path, line: bytes, words: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n\r\n" + line + b"\n[3]")
    source = JsonLinesDataSource(path)
    assert (len(source), source[0], source[2]) == (3, {}, [3])
    with pytest.raises(RecordError, match=f"(?s){words}"):
        source.__getitems__([2, 1, 0])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        source[1]
    assert source.place_of(1) == (str(path), 1, 5)


def test_an_index_where_files_cannot_be_written(tmp_path: Path, cache: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "a.jsonl").write_text("1\n2")
    tmp_path.chmod(0o500)
    try:
        assert list(JsonLinesDataSource(tmp_path)) == [1, 2]
        assert list(cache.rglob("*.bushel-index"))
    finally:
        tmp_path.chmod(0o700)


# Compressed files.

TEXT = "".join(f'{{"id": {number}}}\n' for number in range(1000)).encode()
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def zstd(data: bytes) -> bytes:
    packed: bytes = pytest.importorskip("zstandard").compress(data)
    return packed


@pytest.mark.parametrize("ending", [*PACK, ".zst"])
def test_compressed_files(tmp_path: Path, ending: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(PACK.get(ending, zstd)(TEXT))
    source = JsonLinesDataSource(tmp_path)
    assert (len(source), source[999]) == (1000, {"id": 999})
    assert "unpacked once" in caplog.text
    assert source.place_of(1) == (str(path), 1, 10)
    caplog.clear()
    assert JsonLinesDataSource(tmp_path)[5] == {"id": 5}
    assert caplog.text == ""


def test_a_copy_is_made_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(TEXT))
    with ThreadPoolExecutor(4) as pool:
        sources = list(pool.map(JsonLinesDataSource, [tmp_path] * 4, timeout=PATIENCE_SECONDS))
    assert [source[7] for source in sources] == [{"id": 7}] * 4
    assert caplog.text.count("unpacked once") == 1


def test_several_in_one(tmp_path: Path) -> None:
    """What was compressed part by part, with zeros after it."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(TEXT) + gzip.compress(TEXT) + bytes(700))
    assert len(JsonLinesDataSource(path)) == 2000


def test_a_text_that_begins_as_if_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("BZh91AY&SY is how files of bzip2 begin\n")
    assert TextLinesDataSource(tmp_path)[0].startswith("BZh9")


def test_a_name_that_only_sounds_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(TEXT)
    assert len(JsonLinesDataSource(tmp_path)) == 1000


@pytest.mark.parametrize("ending", PACK)
def test_compressed_and_damaged(tmp_path: Path, cache: Path, ending: str) -> None:
    path = tmp_path / f"a.jsonl{ending}"
    packed = PACK[ending](TEXT)
    path.write_bytes(packed[:-10])
    with pytest.raises(RecordError, match=rf"'{path}' is cut short"):
        JsonLinesDataSource(path)
    path.write_bytes(packed[:50] + bytes(20) + packed[70:])
    with pytest.raises(RecordError, match=rf"'{path}' is damaged: .* cannot unpack"):
        JsonLinesDataSource(path)
    assert [file.name for file in cache.rglob("*") if file.is_file()] == [".lock"]


def test_the_copy_of_what_a_file_was_is_removed(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    copies = []
    for text in (b"1\n2\n", b"3\n"):
        path.write_bytes(gzip.compress(text))
        assert list(JsonLinesDataSource(path)) == [int(line) for line in text.split()]
        copies += [file for file in cache.rglob("*-a.jsonl") if file.is_file()]
    assert len(copies) == 2
    assert [copy.exists() for copy in copies] == [False, True]


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(TEXT))
    (tmp_path / "file").touch()
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path / "file"))
    with pytest.raises(FileError, match=r"unpacked once, to .* that fails: .* BUSHEL_CACHE"):
        JsonLinesDataSource(tmp_path)
