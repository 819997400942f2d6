"""TFRecord files: what TensorFlow and Grain read from them, and what goes wrong."""

import gzip
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bushel.errors import FileError, MissingFileError, PlanError, RecordError
from bushel.experimental import TFRecordIterDataset
from bushel.files.local import LocalFile
from bushel.files.numbers import read_numbers, write_numbers
from bushel.files.progress_line import ProgressLine
from bushel.sources import TFRecordDataSource, encode_example, write_tfrecords
from bushel.sources.tfrecord import crc as tfrecord_crc
from bushel.sources.tfrecord import scan as tfrecord_scan
from bushel.sources.tfrecord.scan import scan_records
from tests.property.profile import tried
from tests.thorough import slow


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.tfrecord"


RECORDS = [b"", b"one", b"two" * 100, b"\0" * 50, b"x" * 5000]


# The checksum.

LENGTHS = [0, 1, 3, 4, 5, 7, 8, 9, 1023, 1024, 1025, 2048, 2049, 5000, 70_000]


def one_by_one(data: bytes) -> int:
    """The checksum as its definition has it, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_checksum_of_numpy() -> None:
    rng = np.random.default_rng(1)
    records = [rng.bytes(length) for length in LENGTHS]
    assert one_by_one(b"123456789") == 0xE3069283
    assert tfrecord_crc.crcs_by_numpy(records).tolist() == list(map(one_by_one, records))
    assert tfrecord_crc.crcs_by_numpy([]).tolist() == []


def test_the_checksum_of_the_library() -> None:
    library = pytest.importorskip("google_crc32c")
    rng = np.random.default_rng(2)
    records = [rng.bytes(length) for length in LENGTHS]
    assert [library.value(record) for record in records] == list(map(one_by_one, records))


@pytest.fixture(params=["library", "numpy"])
def without_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(tfrecord_crc, "_library", lambda: None)
    else:
        pytest.importorskip("google_crc32c")


# Reading by key.


@slow
def test_tensorflow_reads_what_is_written_and_writes_what_is_read(path: Path) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = pytest.importorskip("tensorflow")
    assert write_tfrecords(path, RECORDS) == len(RECORDS)
    ours = path.read_bytes()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in RECORDS:
            writer.write(record)
    assert path.read_bytes() == ours
    assert list(TFRecordDataSource(path)) == RECORDS


LENGTH_LISTS = st.one_of(
    st.lists(st.integers(0, 300), max_size=40),
    # Runs of one length, which are found all at once.
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 90)), max_size=5).map(
        lambda runs: [length for length, count in runs for _ in range(count)]
    ),
)


@tried
@given(LENGTH_LISTS, st.integers(1, 3000))
def test_any_lengths_are_found(tmp_path: Path, lengths: list[int], chunk: int) -> None:
    records = [bytes([number % 256]) * length for number, length in enumerate(lengths)]
    path = tmp_path / "any.tfrecord"
    write_tfrecords(path, records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bushel.sources.tfrecord.scan._CHUNK", max(12, chunk))
        patch.setattr("bushel.sources.tfrecord.scan._LONG", 2 * chunk)
        (tmp_path / ".any.tfrecord.tfrecord.bushel-index").unlink(missing_ok=True)
        source = TFRecordDataSource(path)
    assert [source[key] for key in range(len(source))] == records


def framed(data: bytes) -> bytes:
    """A record whose checksums are zeros, which nobody looks at before it is read."""
    return struct.pack("<QI", len(data), 0) + data + bytes(4)


# What looks like headers where there are none: zeros, and records within records.
PLAIN = st.one_of(
    st.integers(0, 600).map(bytes),
    st.integers(0, 600).map(lambda length: b"x" * length),
    st.lists(st.integers(0, 300), max_size=20).map(lambda n: np.array(n, "<i8").tobytes()),
    st.binary(max_size=100),
)
MISLEADING = st.one_of(
    PLAIN, st.lists(PLAIN, max_size=5).map(lambda some: b"".join(map(framed, some)))
)


def scanned(path: Path) -> list[int] | str:
    with ProgressLine("looking", 0) as progress:
        try:
            bounds = tfrecord_scan.scan_records(LocalFile(str(path)), progress)["bounds"]
        except RecordError as error:
            return str(error)
    return list(bounds)


@tried
@given(
    st.lists(MISLEADING, min_size=1, max_size=40),
    st.tuples(st.integers(12, 200), st.integers(1, 1000)),
    st.sampled_from([0, 100, 1 << 15]),
    st.integers(0, 40),
)
def test_guesses_are_never_believed_when_wrong(
    tmp_path: Path, records: list[bytes], sizes: tuple[int, int], trust: int, cut: int
) -> None:
    whole = b"".join(map(framed, records))
    path = tmp_path / "any.tfrecord"
    path.write_bytes(whole[: len(whole) - cut])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord_scan, "_SHORT", 0)
        plain = scanned(path)
        patch.setattr(tfrecord_scan, "_SHORT", 1 << 11)
        patch.setattr(tfrecord_scan, "_TRUST", trust)
        patch.setattr(tfrecord_scan, "_CHUNK", sizes[0])
        patch.setattr(tfrecord_scan, "_GUESS_CHUNK", sizes[1])
        assert scanned(path) == plain
    if not cut:
        assert plain == np.cumsum([0, *[len(record) + 16 for record in records]]).tolist()


def test_most_guesses_are_right(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    records = [rng.bytes(length) for length in rng.integers(100, 2000, 3000).tolist()]
    path = tmp_path / "any.tfrecord"
    write_tfrecords(path, records)
    data = np.fromfile(path, np.uint8)
    starts, ends = tfrecord_scan._guess(0, data, np.empty(len(data), bool))
    bounds = np.cumsum([0, *[len(record) + 16 for record in records]])
    assert np.isin(bounds[:-1], starts).mean() > 0.98
    assert np.isin(bounds[1:], ends).mean() > 0.98


def damaged(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.usefixtures("without_library")
def test_damaged_data(path: Path) -> None:
    write_tfrecords(path, [b"a" * 20] * 3)
    damaged(path, 36 + 15)
    source = TFRecordDataSource(path)
    assert source[0] == source[2] == b"a" * 20
    words = rf"record 1 of '{path}', which begins at byte 36, is damaged: the checksum of its data"
    with pytest.raises(RecordError, match=words):
        source[1]
    with pytest.raises(ValueError, match=words):
        source.__getitems__([0, 1, 2])
    assert TFRecordDataSource(path, verify=False)[1] == b"aaa`" + b"a" * 16


def good_ones(source: TFRecordDataSource) -> dict[int, bytes]:
    """Every record that can be read."""
    found = {}
    for key in range(len(source)):
        with suppress(RecordError):
            found[key] = source[key]
    return found


@pytest.mark.usefixtures("without_library")
def test_a_damaged_length_that_leads_astray(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other records are there, and it is known where it went wrong."""
    records = [b"%d" % number * 10 for number in range(30)]
    write_tfrecords(path, records)
    start = 16 * 10 + sum(map(len, records[:10]))
    damaged(path, start + 1)
    source = TFRecordDataSource(path)
    assert "Of its 30 records, 1 cannot be read (the first begins at byte 260)" in caplog.text
    assert good_ones(source) == {key: record for key, record in enumerate(records) if key != 10}
    words = rf"record 10 of '{path}', which begins at byte {start}, is damaged: the checksum of its"
    with pytest.raises(RecordError, match=words):
        source[10]
    assert len(TFRecordDataSource(path)) == 30  # By the index that is kept.


@tried
@given(
    lengths=st.lists(st.integers(0, 60), min_size=3, max_size=12),
    spoiled=st.integers(0, 10**6),
    noise=st.binary(min_size=1, max_size=8),
    chunk=st.integers(40, 300),
)
def test_what_is_damaged_is_all_that_is_lost(
    tmp_path: Path, lengths: list[int], spoiled: int, noise: bytes, chunk: int
) -> None:
    path = tmp_path / "a.tfrecord"
    (tmp_path / ".a.tfrecord.tfrecord.bushel-index").unlink(missing_ok=True)
    records = [bytes([65 + number]) * length for number, length in enumerate(lengths)]
    write_tfrecords(path, records)
    data = bytearray(path.read_bytes())
    first = spoiled % (len(data) - len(noise) + 1)
    data[first : first + len(noise)] = noise
    path.write_bytes(data)
    bounds = np.cumsum([0, *(16 + length for length in lengths)])
    touched = {
        int(bounds.searchsorted(place, "right")) - 1 for place in (first, first + len(noise) - 1)
    }
    with suppress(RecordError):
        # A wrong length may lead to the header of a later record, and on to the end of the file.
        assume(
            len(scan_records(LocalFile(str(path)), ProgressLine("", 1))["bounds"]) == len(bounds)
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bushel.sources.tfrecord.damaged._CHUNK", chunk)
        found = good_ones(TFRecordDataSource(path))
    others = [record for key, record in enumerate(records) if key not in touched]
    left = iter(found.values())
    assert all(record in left for record in others)
    assert all(record in records for record in found.values())


def test_a_damaged_length_that_leads_on(path: Path) -> None:
    """Here the records still end with the file, and only reading can tell."""
    write_tfrecords(path, [b"a" * 20] * 3)
    damaged(path, 8)
    with pytest.raises(RecordError, match="checksum of its length is wrong"):
        TFRecordDataSource(path)[0]


@pytest.mark.parametrize("left", [1, 11, 12, 30, 35])
def test_cut_short(path: Path, left: int) -> None:
    write_tfrecords(path, [b"a" * 20] * 3)
    path.write_bytes(path.read_bytes()[: 2 * 36 + left])
    source = TFRecordDataSource(path)
    assert len(source) == 3 and source[0] == source[1] == b"a" * 20
    words = rf"record 2 of '{path}', which begins at byte 72, is cut short: the file ends before"
    with pytest.raises(RecordError, match=words):
        source[2]


def test_no_tfrecord_file(path: Path) -> None:
    path.write_bytes(b"this is a text, and no records " * 10)
    with pytest.raises(RecordError, match=r"record 0 .* no TFRecord file"):
        TFRecordDataSource(path)


def test_examples(path: Path) -> None:
    write_tfrecords(path, [encode_example({"n": 5}), encode_example({"m": 6}), b"\x0a\x09"])
    source = TFRecordDataSource(path, parse="example")
    assert [source[key]["nm"[key]].tolist() for key in range(2)] == [[5], [6]]
    with pytest.raises(RecordError, match=rf"record 2 of '{path}', .* byte \d+, cannot be parsed"):
        source[2]
    source = TFRecordDataSource(path, features={"n": (int, ())})
    assert source[0] == {"n": 5}
    with pytest.raises(RecordError, match=r"record 1 of .*: there is no feature 'n'"):
        source[1]


def test_options_that_there_are_not(path: Path) -> None:
    write_tfrecords(path, [])
    with pytest.raises(PlanError, match="`parse` is 'example'"):
        TFRecordDataSource(path, parse="json")
    with pytest.raises(PlanError, match="cannot be"):
        TFRecordDataSource(path, features={"x": "image"})
    with pytest.raises(MissingFileError, match=r"no\.tfrecord"):
        TFRecordDataSource(path.parent / "no.tfrecord")


def test_nothing_at_all(path: Path) -> None:
    write_tfrecords(path, [])
    assert len(TFRecordDataSource([path, path])) == 0


def test_a_failed_writing_leaves_nothing(path: Path) -> None:
    def records() -> Iterator[bytes]:
        yield b"one"
        raise KeyError("two")

    with pytest.raises(KeyError):
        write_tfrecords(path, records())
    assert list(path.parent.iterdir()) == []


# Files that change.


def test_a_file_that_was_replaced(path: Path) -> None:
    write_tfrecords(path, [b"old"] * 2)
    source = TFRecordDataSource(path)
    write_tfrecords(path, [b"other"] * 3)
    # This source has the old one open, and goes on with it.
    assert list(source) == [b"old"] * 2
    vars(source)["_files"] = type(vars(source)["_files"])()
    with pytest.raises(FileError, match="another file than the one"):
        source[0]
    assert list(TFRecordDataSource(path)) == [b"other"] * 3


def test_a_file_that_is_written_to(path: Path) -> None:
    write_tfrecords(path, [b"old"] * 2)
    source = TFRecordDataSource(path)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(FileError, match="was written to while"):
        source[0]


def test_an_index_of_another_file_is_made_again(path: Path) -> None:
    write_tfrecords(path, [b"first"])
    assert len(TFRecordDataSource(path)) == 1
    (index,) = [file for file in path.parent.iterdir() if file != path]
    before = index.read_bytes()
    write_tfrecords(path, [b"second", b"third"])
    os.utime(path, ns=(1, 1))
    assert list(TFRecordDataSource(path)) == [b"second", b"third"]
    assert index.read_bytes() != before


def test_an_index_that_is_damaged(path: Path) -> None:
    write_tfrecords(path, [b"abc"] * 3)
    TFRecordDataSource(path)
    (index,) = [file for file in path.parent.iterdir() if file != path]
    data = index.read_bytes()
    for damaged in (data[:-16], data[:8] + b"\x01" + data[9:], data[:20] + data[28:], b""):
        index.write_bytes(damaged)
        assert TFRecordDataSource(path).__getitems__([0, 1, 2]) == [b"abc"] * 3
        assert index.read_bytes() == data
    # Its checksums are right, and its numbers are not.
    descriptor = os.open(index, os.O_RDONLY)
    footer, columns = read_numbers(descriptor, TFRecordDataSource.columns, lambda *_: None)
    os.close(descriptor)
    for place in (-1, 0, 58, 1 << 62):
        columns["bounds"] = np.array([0, 19, place, 57])
        with index.open("wb") as out:
            write_numbers(out.write, footer, columns)
        source = TFRecordDataSource(path)
        assert source[0] == b"abc"
        for keys in ([1], [0, 1, 2]):
            with pytest.raises(FileError, match=r"index of .* is damaged; remove '"):
                source.__getitems__(keys)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(path: Path) -> None:
    write_tfrecords(path, [b"abc"])
    path.chmod(0)
    with pytest.raises(FileError, match="cannot be read: Permission denied"):
        TFRecordDataSource(path)


# Compressed files.


def test_compressed_files_are_unpacked(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_tfrecords(path, RECORDS)
    packed = path.with_name("packed.tfrecord")  # TensorFlow's names do not tell.
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(TFRecordIterDataset(str(packed))) == RECORDS
    assert "is compressed by gzip" in caplog.text
    caplog.clear()
    source = TFRecordDataSource(packed)
    assert list(source) == RECORDS
    assert caplog.text == ""  # The copy was there.
    assert source.place_of(1) == (str(packed), 1, 16)


def test_a_length_that_looks_compressed(path: Path) -> None:
    """The first bytes of a record of this length are those of a gzip file."""
    record = bytes(0x088B1F)
    write_tfrecords(path, [record])
    assert path.read_bytes().startswith(b"\x1f\x8b\x08")
    assert TFRecordDataSource(path)[0] == next(iter(TFRecordIterDataset(str(path)))) == record
