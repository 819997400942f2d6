"""`bushel.open`: which source reads which files."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any, get_overloads

import numpy as np
import pytest

import bushel
from bushel.errors import BushelError, MissingFileError, PlanError
from bushel.sources.formats import FORMATS, format_of
from bushel.sources.open_source import open_source
from bushel.write.writers import TARGETS

ROWS = [{"x": 1}, {"x": 2}]
_FOREIGN = Path(__file__).parent / "foreign"


def _write(name: str, path: Path) -> None:
    if name in TARGETS:
        target = TARGETS[name]
        records = [target.encode(row, number) for number, row in enumerate(ROWS)]
        target.write(str(path), records)
    elif name == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif name == "csv":
        path.write_text("x\n1\n2\n")
    elif name == "text":
        path.write_text("one\ntwo\n")
    elif name == "numpy":
        np.save(path, np.arange(2))
    else:
        raise NotImplementedError(name)


WRITTEN = ["arrayrecord", "parquet", "arrow", "numpy", "tar", "tfrecord", "jsonl", "csv", "text"]


@pytest.mark.parametrize("name", WRITTEN)
def test_by_ending(name: str, tmp_path: Path) -> None:
    ending = next(known.endings[0] for known in FORMATS if known.name == name)
    path = tmp_path / f"some.thing{ending}"
    _write(name, path)
    assert format_of(path).name == name
    assert len(bushel.open(path)) == 2
    assert len(bushel.open(str(tmp_path / "*"))) == 2
    assert len(bushel.open(tmp_path)) == 2
    assert len(bushel.open([path, path])) == 4


@pytest.mark.parametrize(
    "name", ["arrayrecord", "parquet", "arrow", "numpy", "tar", "tfrecord", "jsonl"]
)
def test_by_content(name: str, tmp_path: Path) -> None:
    written = tmp_path / ("x.npy" if name == "numpy" else "x")
    _write(name, written)
    path = tmp_path / "no ending"
    written.rename(path)
    assert format_of(path).name == name


def test_content_comes_before_the_ending(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    _write("parquet", path)
    assert format_of(path).name == "parquet"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("tfrecord", "train.tfrecord-00000-of-00010"),
        ("arrayrecord", "set-train.array_record-00000-of-00001"),
        ("jsonl", "A.JSONL"),
        ("csv", "a.tsv"),
    ],
)
def test_names_in_use(name: str, file: str, tmp_path: Path) -> None:
    _write(name, tmp_path / file)
    assert format_of(tmp_path / file).name == name
    assert format_of(tmp_path).name == name


def test_compressed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"x": 1}\n'))
    assert format_of(path).name == "jsonl"


def test_the_user_says(tmp_path: Path) -> None:
    path = tmp_path / "a.data"
    path.write_text("one\ntwo\nthree\n")
    assert list(bushel.MapDataset.source(bushel.open(path, format="text"))) == [
        "one",
        "two",
        "three",
    ]


def test_options_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1;2\n3;4\n")
    source = bushel.open(path, delimiter=";", has_header=False)
    assert len(source) == 2


def test_other_files_in_a_folder_do_not_disturb(tmp_path: Path) -> None:
    _write("parquet", tmp_path / "a.parquet")
    (tmp_path / "README.md").write_text("words")
    (tmp_path / ".hidden.csv").write_text("words")
    (tmp_path / "_SUCCESS").write_text("")
    assert format_of(tmp_path).name == "parquet"
    assert len(bushel.open(tmp_path)) == 2


def test_image_folder(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(b"not read")
    (tmp_path / "README").write_text("no class")
    assert format_of(tmp_path).name == "images"
    assert len(bushel.open(tmp_path)) == 2


@pytest.mark.parametrize("ending", ["png", "ppm"])
def test_images_without_classes(ending: str, tmp_path: Path) -> None:
    """They are files, however they are named."""
    paths = [tmp_path / f"{number}.{ending}" for number in range(2)]
    for path in paths:
        path.write_bytes(b"not read")
    for named in (tmp_path, tmp_path / f"*.{ending}", paths):
        source = bushel.open(named)
        assert [source[key]["path"] for key in range(len(source))] == list(map(str, paths))
    assert len(bushel.open(paths[0])) == 1


def test_old_tar_files_have_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        member = tarfile.TarInfo("k.txt")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"ab"))
    assert format_of(path).name == "tar"
    assert len(bushel.open(path)) == 1


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda folder: folder / "none.parquet", MissingFileError, "there is no file"),
        (lambda folder: folder / "*.parquet", MissingFileError, "no file matches"),
        (lambda folder: _binary(folder), PlanError, "is not recognised.*format="),
        (lambda folder: _mixed(folder), PlanError, "several formats"),
        (lambda folder: [*_mixed(folder).iterdir()], PlanError, "several formats"),
        (lambda folder: [_FOREIGN / "mds", _FOREIGN / "mds-gz"], PlanError, "'mds'.*by itself"),
        (lambda folder: [_FOREIGN / "litdata"], PlanError, "litdata' is a folder.*by itself"),
        (lambda folder: [_FOREIGN / "mds/index.json"], PlanError, "an index of.*'mds'.*by itself"),
        (lambda folder: _FOREIGN / "litdata*/index.json", PlanError, "an index of.*'litdata'"),
        (lambda folder: folder, MissingFileError, "is empty"),
        (lambda folder: 7, PlanError, "got int"),
    ],
)
def test_refusals(make: Any, kind: type[BushelError], words: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=words):
        bushel.open(make(tmp_path))


def _binary(folder: Path) -> Path:
    path = folder / "a.bin"
    path.write_bytes(bytes(range(256)))
    return path


def _mixed(folder: Path) -> Path:
    _write("csv", folder / "a.csv")
    _write("jsonl", folder / "a.jsonl")
    return folder


def test_a_note_beside_other_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "readme.txt").write_text("about the sounds\n")
    (tmp_path / "1.wav").write_bytes(b"RIFF")
    assert len(bushel.open(tmp_path)) == 1
    assert not caplog.text
    (tmp_path / "2.wav").write_bytes(b"RIFF")
    assert len(bushel.open(tmp_path)) == 1
    assert "1 file is read, as text, and 2 others are not, such as '1.wav'" in caplog.text
    assert len(bushel.open(tmp_path, format="files")) == 3


def test_folders_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "flute").mkdir()
    (tmp_path / "flute" / "1.wav").write_bytes(b"RIFF")
    with pytest.raises(MissingFileError, match=r"FilesDataSource\('.*/\*/\*'\)"):
        bushel.open(tmp_path)
    assert len(bushel.sources.FilesDataSource(f"{tmp_path}/*/*")) == 1


def test_an_unknown_option(tmp_path: Path) -> None:
    _write("csv", tmp_path / "a.csv")
    with pytest.raises(TypeError, match="unexpected keyword argument 'colums'") as caught:
        bushel.open(tmp_path / "a.csv", colums=["x"])
    assert any("options of `CsvDataSource`: columns, " in note for note in caught.value.__notes__)


def test_an_unknown_format() -> None:
    with pytest.raises(PlanError, match="no format 'excel'; there are arrayrecord, parquet"):
        bushel.open("a.xls", format="excel")


def test_every_format_names_a_class() -> None:
    for known in FORMATS:
        module, _, name = known.source.partition(":")
        found = getattr(__import__(f"bushel.sources.{module}", fromlist=[name]), name)
        assert hasattr(found, "__getitem__"), known.name


def test_a_type_checker_knows_the_source_of_every_format() -> None:
    """By what is written for it, which nothing else reads."""
    known = {}
    for way in get_overloads(open_source):
        format, made = way.__annotations__["format"], way.__annotations__["return"]
        if format.startswith("Literal["):
            known[format.removeprefix("Literal['").removesuffix("']")] = made
    assert known == {known.name: known.source.partition(":")[2] for known in FORMATS}
