"""Tar files of samples, as WebDataset has them, and what goes wrong."""

import gzip
import io
import json
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.errors import PlanError, RecordError
from bushel.files.local import LocalFile
from bushel.sources import TarDataSource
from bushel.sources.tar import members as tar_members
from bushel.sources.tar import plain_members as tar_plain
from bushel.sources.tar import runs_ahead
from bushel.sources.tar import samples as tar_samples
from bushel.sources.tar.members import Window
from tests.grain.oracle import assert_same
from tests.property.profile import tried


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path_factory.mktemp("cache")))


Members = Sequence[tuple[str, bytes | None]]


def write(path: Path, members: Members, format: int = tarfile.PAX_FORMAT) -> Path:
    """Writes members; those without data are folders."""
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            if data is None:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(data)
            tar.addfile(member, io.BytesIO(data or b""))
    return path


LONG = "folder/" * 30 + "name" * 40
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
SAMPLES: Members = [
    ("a.txt", b"1"),
    ("a.cls", b"2"),
    ("folder", None),
    ("folder/b.seg.PNG", b"x" * 600),
    ("README", b"not a sample"),
    ("folder/b.txt", b""),
    ("other/b.txt", b"y" * 512),
    (".hidden", b""),
    ("v1.0/c.txt", b"z"),
    ("../../etc/d.txt", b"only a key"),
    ("/e.txt", b"this too"),
    ("ü.txt", b"letters"),
    ("a.txt", b"a again"),
]
READ = [
    {"__key__": "a", "txt": b"1", "cls": b"2"},
    {"__key__": "folder/b", "seg.png": b"x" * 600, "txt": b""},
    {"__key__": "other/b", "txt": b"y" * 512},
    {"__key__": "v1.0/c", "txt": b"z"},
    {"__key__": "../../etc/d", "txt": b"only a key"},
    {"__key__": "/e", "txt": b"this too"},
    {"__key__": "ü", "txt": b"letters"},
    {"__key__": "a", "txt": b"a again"},
]


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS.keys())
def test_samples(tmp_path: Path, format: int) -> None:
    members = list(SAMPLES)
    records = list(READ)
    if format != tarfile.USTAR_FORMAT:
        members.append((f"{LONG}.txt", b"long"))
        records.append({"__key__": LONG, "txt": b"long"})
    else:
        members.append(("p" * 120 + "/q.txt", b"prefix"))
        records.append({"__key__": "p" * 120 + "/q", "txt": b"prefix"})
    source = TarDataSource(write(tmp_path / "a.tar", members, format))
    assert list(source) == records
    assert source.__getitems__(range(len(source) - 1, -1, -1)) == records[::-1]


@pytest.mark.filterwarnings("ignore")
def test_webdataset_reads_the_same(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    path = write(tmp_path / "a.tar", [*SAMPLES, (f"{LONG}.txt", b"long")])
    theirs = [
        {name: value for name, value in sample.items() if name not in ("__url__", "__local_path__")}
        for sample in webdataset.WebDataset(str(path), shardshuffle=False)
    ]
    assert theirs == list(TarDataSource(path))


SIZES = st.lists(st.tuples(st.integers(0, 3000), st.booleans()), max_size=12)


@tried
@given(SIZES, st.integers(512, 5000), st.sampled_from(sorted(FORMATS.values())))
def test_any_sizes(tmp_path: Path, sizes: list[tuple[int, bool]], chunk: int, format: int) -> None:
    members: list[tuple[str, bytes]] = []
    records: list[dict[str, Any]] = []
    for number, (size, new) in enumerate(sizes):
        if new or not records:
            records.append({"__key__": str(number)})
        key, data = records[-1]["__key__"], bytes([number]) * size
        records[-1][f"f{number}"] = data
        members.append((f"{key}.f{number}", data))
    path = write(tmp_path / "any.tar", members, format)
    path.with_name(".any.tar.tar.bushel-index").unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bushel.sources.tar.source._CHUNK", chunk)
        patch.setattr("bushel.sources.tar.source._SMALL", chunk // 2)
        source = TarDataSource(path)
    assert [source[key] for key in range(len(source))] == records


def packed(members: Members, format: int, mtime: float = 0) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.mtime = mtime
            member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            member.size = len(data or b"")
            tar.addfile(member, io.BytesIO(data or b""))
    return out.getvalue()


def found_by(data: bytes, chunk: int, worth_it: int) -> list[Any]:
    """The members, and what is wrong after them."""
    window = Window(lambda start, stop: data[start:stop], len(data), chunk, chunk)
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tar_members, "_WORTH_IT", worth_it)
        patch.setattr(tar_plain, "_SHORTEST_RUN", 1)
        try:
            found.extend(tar_members.members(window, "a.tar"))
        except RecordError as error:
            found.append(str(error))
    return found


NAMES = st.sampled_from(["a", "b.txt", "c/d.jpg", "e" * 100, "f" * 90 + "/" + "g" * 90, "ü"])
CONTENTS = st.one_of(st.none(), st.integers(0, 1500).map(lambda size: b"7" * size))
WITHIN = st.lists(st.tuples(NAMES, CONTENTS), max_size=12)


def packed_within(described: Any, format: int, mtime: float) -> bytes:
    """A tar file of contents; a list of contents is a tar file within it."""
    within = [(name, packed(x, format) if isinstance(x, list) else x) for name, x in described]
    return packed(within, format, mtime)


@tried
@given(
    st.lists(st.tuples(NAMES, st.one_of(CONTENTS, WITHIN)), max_size=15),
    st.sampled_from(sorted(FORMATS.values())),
    st.integers(600, 20_000),
    st.integers(0, 10_000),
    st.integers(0, 255),
    st.sampled_from([0, 1.5, 1_600_000_000.123456]),
)
def test_members_found_all_at_once(
    described: Any, format: int, chunk: int, place: int, byte: int, mtime: float
) -> None:
    """Whatever is within them, even other tar files, and whatever is damaged."""
    data = packed_within(described, format, mtime)
    place %= len(data)
    for written in (data, data[:place] + bytes([byte]) + data[place + 1 :]):
        assert found_by(written, chunk, 512) == found_by(written, chunk, 1 << 30)


def found_ahead(path: Path, part: int, begin: int, trust: int) -> tuple[list[Any], int]:
    """The members, and what is wrong after them; and how many of them were known ahead."""
    file, known, found = LocalFile(str(path)), 0, []
    window = Window(file.read, file.size, 2048, 1 << 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tar_plain, "_SHORTEST_RUN", 1)
        patch.setattr(runs_ahead, "CHUNK", part)
        patch.setattr(runs_ahead, "_TRUST", trust)
        ahead = runs_ahead.RunsAhead(file, window, begin)
        try:
            for members in tar_members.stretches(window, "a.tar", known=ahead):
                if isinstance(members, tar_plain.PlainMembers):
                    found.extend(members.each())
                    known += len(members.begins)
                else:
                    found.append(members)
        except RecordError as error:
            found.append(str(error))
        finally:
            ahead.end()
    return found, known


@tried
@given(
    st.lists(st.tuples(NAMES, st.one_of(CONTENTS, WITHIN)), max_size=15),
    st.sampled_from(sorted(FORMATS.values())),
    st.integers(1, 30).map(lambda blocks: blocks * 512),
    st.integers(0, 5000),
    st.sampled_from([0, 100, 1 << 20]),
    st.integers(0, 10_000),
    st.integers(0, 255),
    st.sampled_from([0, 1.5]),
)
def test_members_found_ahead(
    tmp_path: Path,
    described: Any,
    format: int,
    part: int,
    begin: int,
    trust: int,
    place: int,
    byte: int,
    mtime: float,
) -> None:
    """On all cores, part by part: as by going from one to the next."""
    data = packed_within(described, format, mtime)
    place %= len(data)
    path = tmp_path / "a.tar"
    for written in (data, data[:place] + bytes([byte]) + data[place + 1 :], data[:place]):
        path.write_bytes(written)
        expected = found_by(written, 1 << 20, 1 << 30)
        assert found_ahead(path, part, begin, trust)[0] == expected


@pytest.mark.parametrize("before", [0, 10 * 1024])
@pytest.mark.parametrize("end", [1, 100, 300, 511])
def test_the_end_of_a_cut_file_ahead(tmp_path: Path, before: int, end: int) -> None:
    """A part that is shorter than a header."""
    whole = packed([(f"{n}.txt", b"7" * n) for n in range(20)], tarfile.USTAR_FORMAT)
    written = whole[: before + end]
    path = tmp_path / "a.tar"
    path.write_bytes(written)
    assert found_ahead(path, 1024, 0, 1 << 12)[0] == found_by(written, 1 << 20, 1 << 30)


def test_of_small_members_most_are_known_ahead(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(packed([(f"{n}.txt", b"7" * n) for n in range(500)], tarfile.USTAR_FORMAT))
    found, known = found_ahead(path, 1 << 15, 0, 1 << 12)
    assert found == found_by(path.read_bytes(), 1 << 20, 1 << 30)
    # One at the end of each part is not.
    assert len(found) == 500
    assert 500 - known == -(-path.stat().st_size // (1 << 15))


def test_what_is_special_throughout_is_left_to_the_window(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(packed([(f"{n}" * 60, b"") for n in range(500)], tarfile.GNU_FORMAT))
    file = LocalFile(str(path))
    window = Window(file.read, file.size, 1 << 16, 1 << 20)
    ahead = runs_ahead.RunsAhead(file, window, 0)
    assert len(list(tar_members.stretches(window, "a.tar", known=ahead))) > 400
    assert not window.narrow
    assert ahead.from_place(0) is None


def test_times_stand_before_their_members(tmp_path: Path) -> None:
    """Python writes times that are no whole seconds in headers of their own."""
    data = packed([(f"{n}.txt", b"7" * n) for n in range(100)], tarfile.PAX_FORMAT, 1.6e9 + 0.25)
    (run,) = tar_plain.plain_members(data, 0)
    # The last one is left out, for what follows it is not seen.
    assert len(run.begins) == 99
    assert (run.starts - run.begins == 3 * 512).all()


def bounds_of(names: list[str], parts: list[int], at_once: bool) -> Any:
    """Where samples begin, whose members come in so many parts; or what is wrong."""
    samples = tar_samples.Samples("a.tar")
    places = np.arange(len(names)) * 1024
    table = np.array([list(name.encode().ljust(9, b"\0")) for name in names], np.uint8)
    members = tar_plain.PlainMembers(places, places + 512, places + 600, table.reshape(-1, 9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tar_samples, "_WORTH_IT", 0 if at_once else 1 << 30)
        try:
            for start, stop in pairwise(sorted([0, *parts, len(names)])):
                samples.add_many(members.part(start, stop))
        except RecordError as error:
            return str(error)
    return samples.bounds().tolist()


KEYS = st.sampled_from(["a", "b", "c/a", "c/b", "d.e/a"])
ENDINGS = st.sampled_from([".x", ".y", ".X", ".z", ".z.x", "", ".ü"])


@tried
@given(st.lists(st.tuples(KEYS, ENDINGS).map("".join), max_size=25), st.lists(st.integers(0, 25)))
def test_samples_found_all_at_once(names: list[str], parts: list[int]) -> None:
    parts = [min(part, len(names)) for part in parts]
    assert bounds_of(names, parts, True) == bounds_of(names, parts, False)


@tried
@given(st.lists(st.integers(1, 5), min_size=3, max_size=20), st.lists(st.integers(0, 60)))
def test_samples_of_plain_names(sizes: list[int], parts: list[int]) -> None:
    names = [f"{key:03}.{n}" for key, size in enumerate(sizes) for n in range(size)]
    parts = [min(part, len(names)) for part in parts]
    ends = np.cumsum([0, *sizes])
    assert bounds_of(names, parts, True) == [*(ends[:-1] * 1024), ends[-1] * 1024 - 424]


def test_links_and_a_missing_end(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in (("a.txt", tarfile.REGTYPE), ("a.link", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "x"
            tar.addfile(member)
        member = tarfile.TarInfo("a.last")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"end"))
    # As it is when a program does not write the zeros.
    path.write_bytes(path.read_bytes()[: 3 * 512 + 3])
    assert list(TarDataSource(path)) == [{"__key__": "a", "txt": b"", "last": b"end"}]


def test_sizes_in_binary(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", [("a.txt", b"abc")], tarfile.USTAR_FORMAT)
    data = bytearray(path.read_bytes())
    data[124:136] = b"\x80" + (3).to_bytes(11, "big")
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    assert TarDataSource(path)[0]["txt"] == b"abc"


def test_sizes_in_extended_headers(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("short.txt")
        member.size, member.pax_headers = 3, {"path": "real.txt", "size": "3", "comment": "x=y\n"}
        tar.addfile(member, io.BytesIO(b"abc"))
    assert list(TarDataSource(path)) == [{"__key__": "real", "txt": b"abc"}]


def test_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    write(tmp_path / "b.tar", [])
    assert len(TarDataSource(tmp_path)) == 0


def test_compressed(tmp_path: Path) -> None:
    packed = gzip.compress(write(tmp_path / "a.tar", SAMPLES).read_bytes())
    (tmp_path / "a.tar").unlink()
    for name in ("a.tar.gz", "b.tgz"):
        (tmp_path / name).write_bytes(packed)
    assert list(TarDataSource(tmp_path)) == READ * 2


# Decoding.


def saved(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def picture() -> tuple[bytes, Any]:
    images = pytest.importorskip("PIL.Image")
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    out = io.BytesIO()
    images.fromarray(array).save(out, "PNG")
    return out.getvalue(), array


def test_decoding(tmp_path: Path) -> None:
    png, image = picture()
    arrays = io.BytesIO()
    np.savez(arrays, x=np.arange(3))
    members = {
        "txt": ("grün".encode(), "grün"),
        "cls": (b" 7\n", 7),
        "json": (json.dumps({"a": [1]}).encode(), {"a": [1]}),
        "jsonl": (b"1\n\n[2]", [1, [2]]),
        "npy": (saved(np.eye(2)), np.eye(2)),
        "npz": (arrays.getvalue(), {"x": np.arange(3)}),
        "png": (png, image),
        "left.png": (png, image),
        "pth": (b"\x80", b"\x80"),
    }
    path = write(tmp_path / "a.tar", [(f"k.{name}", data) for name, (data, _) in members.items()])
    expected = {name: value for name, (_, value) in members.items()}
    assert_same(TarDataSource(path, decode=True)[0], {"__key__": "k", **expected})
    own = TarDataSource(path, decode={".CLS": True, "txt": len, "png": lambda data: 0})[0]
    assert (own["cls"], own["txt"], own["png"], own["left.png"]) == (7, 5, 0, 0)
    assert own["json"] == members["json"][0]


def test_data_runs_no_programs(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", [("k.npy", saved(np.array([{}], dtype=object)))])
    with pytest.raises(RecordError, match=r"sample 0 of '.*', .* has a file 'k\.npy' that cannot"):
        TarDataSource(path, decode=True)[0]


WRONG_DECODERS: dict[str, tuple[Any, str]] = {
    "a word": ("rgb", "True, or a mapping"),
    "an ending that is not known": ({"flac": True}, "no decoder for 'flac'"),
    "no function": ({"flac": 1}, "has 1 for 'flac'"),
}


@pytest.mark.parametrize(("decode", "words"), WRONG_DECODERS.values(), ids=WRONG_DECODERS.keys())
def test_decoders_that_are_none(tmp_path: Path, decode: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        TarDataSource(write(tmp_path / "a.tar", []), decode=decode)


# What goes wrong.


def test_two_files_of_one_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", [("a.txt", b"1"), ("b.txt", b"1"), ("b.TXT", b"2")])
    with pytest.raises(RecordError, match=r"sample 1 of '.*' has two files 'b\.TXT', .* 2,048"):
        TarDataSource(path)


def samples_in(path: Path) -> dict[int, str]:
    """The keys of the samples that can be read."""
    source, found = TarDataSource(path), {}
    for key in range(len(source)):
        with suppress(RecordError):
            found[key] = source[key]["__key__"]
    return found


PAIRS = [(f"{letter}.{end}", b"1" * 600) for letter in "abcde" for end in ("cls", "txt")]
# Where the header of each of them is.
AT = {name: 1536 * number for number, (name, _) in enumerate(PAIRS)}


@pytest.mark.parametrize("left", [AT["c.cls"] + 700, AT["c.txt"] + 700, AT["c.txt"] + 100])
def test_cut_short(tmp_path: Path, left: int, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.tar", PAIRS)
    path.write_bytes(path.read_bytes()[:left])
    assert samples_in(path) == {0: "a", 1: "b"}
    assert "is cut short" in caplog.text and "Of its 3 samples, 1 cannot be read" in caplog.text
    with pytest.raises(RecordError, match=rf"sample 2 of '{path}', which begins at byte 6,144, is"):
        TarDataSource(path).__getitems__([0, 1, 2])


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize(
    ("wrong", "sample", "begins"),
    [("c.cls", 2, AT["c.cls"]), ("c.txt", 2, AT["c.cls"]), ("e.txt", 4, AT["e.cls"])],
)
def test_damaged(tmp_path: Path, wrong: str, sample: int, begins: int, format: int) -> None:
    """One header is wrong: one sample is lost, and the others are whole."""
    path = write(tmp_path / "a.tar", PAIRS, format)
    data = bytearray(path.read_bytes())
    data[AT[wrong] + 3] ^= 1
    path.write_bytes(data)
    kept = {number: letter for number, letter in enumerate("abcde") if number != sample}
    assert samples_in(path) == kept
    assert samples_in(path) == kept  # By the index.
    source = TarDataSource(path)
    assert all(set(source[key]) == {"__key__", "cls", "txt"} for key in kept)
    assert source.place_of(sample) == (str(path), sample, begins)
    with pytest.raises(RecordError, match=rf"sample {sample} .* byte {begins:,}, is damaged"):
        source[sample]


def test_damaged_samples_of_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", [(f"{letter}.txt", b"1" * 600) for letter in "abcd"])
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    data[2 * 1536] ^= 1
    path.write_bytes(data)
    assert samples_in(path) == {1: "b", 3: "d"}


def test_no_tar_file(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"this is a text " * 100)
    with pytest.raises(RecordError, match="or damaged: the header of a member at byte 0"):
        TarDataSource(tmp_path)


def test_sparse_files(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("a.bin")
        member.pax_headers = {"GNU.sparse.major": "1"}
        tar.addfile(member)
    with pytest.raises(RecordError, match=r"holes \(sparse\)"):
        TarDataSource(path)
