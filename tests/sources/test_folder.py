"""Files that are a record each, and images in a folder for each class."""

import io
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from PIL import Image

from bushel import MapDataset
from bushel.errors import FileError, MissingFileError, MissingPackageError, PlanError, RecordError
from bushel.sources import FilesDataSource, ImageFolderDataSource, images
from tests.sources.reading import check_source


def encoded(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(
        file, kind, **options
    )
    return file.getvalue()


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three images of two classes, and much that is none."""
    for name in ("dog/2.png", "dog/10.PNG", "cat/deep/er/1.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        size = len(name)
        path.write_bytes(encoded(np.full((2, 3, 3), size, dtype=np.uint8)))
    (tmp_path / "dog" / ".hidden.png").write_bytes(b"")
    (tmp_path / "dog" / "notes.txt").write_bytes(b"")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "readme.md").write_bytes(b"")
    return tmp_path


def test_files(tmp_path: Path) -> None:
    contents = {"1": b"one", "2": b"", "10": b"ten" * 99}
    for name, content in contents.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
    (tmp_path / ".hidden").write_bytes(b"")
    wanted = [
        {"data": content, "path": str(tmp_path / f"{name}.txt")}
        for name, content in contents.items()
    ]
    source = FilesDataSource(tmp_path)
    check_source(source, wanted)
    check_source(FilesDataSource(tmp_path / "*.txt"), wanted)
    check_source(FilesDataSource(tmp_path, endings=".TXT"), wanted)
    check_source(FilesDataSource([tmp_path / "2.txt", tmp_path / "1.txt"]), wanted[1::-1])
    assert source.place_of(1) == (str(tmp_path / "2.txt"), 0, 0)
    assert source.paths == [record["path"] for record in wanted]
    with pytest.raises(MissingFileError, match=r"ends in \.md; it has 3 others"):
        FilesDataSource(tmp_path, endings=[".md"])
    (tmp_path / "2.txt").unlink()
    with pytest.raises(MissingFileError, match=r"there is no file '.*2\.txt'"):
        source[1]
    assert source[2] == wanted[2]


def test_files_far_away() -> None:
    store = fsspec.filesystem("memory")
    for name, content in (("pets/dog/2.png", b"two"), ("pets/dog/10.png", b"ten")):
        store.pipe(f"/far/{name}", content)
    store.pipe("/far/pets/cat/deep.png", b"cat")
    store.pipe("/far/pets/cat/notes.txt", b"")
    files = FilesDataSource("memory://far/pets/dog")
    assert [record["data"] for record in MapDataset.source(files)] == [b"two", b"ten"]
    pictures = ImageFolderDataSource("memory://far/pets")
    assert pictures.classes == ("cat", "dog")
    records: list[Any] = list(MapDataset.source(pictures))
    assert [record["image"] for record in records] == [b"cat", b"two", b"ten"]
    assert [record["label"] for record in records] == [0, 1, 1]


def test_names_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    name = os.fsencode(tmp_path) + b"/a/\xff\xfe.png"
    with open(name, "wb") as file:
        file.write(b"content")
    path = os.fsdecode(name)
    source = FilesDataSource(tmp_path / "a")
    check_source(source, [{"data": b"content", "path": path}], workers=True)
    assert repr(source).encode()
    damaged = ImageFolderDataSource(tmp_path, decode=True)
    with pytest.raises(RecordError) as caught:
        damaged[0]
    # It can be printed.
    assert r"\udcff\udcfe.png', record 0" in str(caught.value).encode().decode()


def test_image_folders(pets: Path) -> None:
    paths = [str(pets / name) for name in ("cat/deep/er/1.png", "dog/2.png", "dog/10.PNG")]
    source = ImageFolderDataSource(pets)
    wanted = [
        {"image": Path(path).read_bytes(), "label": label, "path": path}
        for path, label in zip(paths, (0, 1, 1), strict=True)
    ]
    check_source(source, wanted)
    assert source.classes == ("cat", "dog")
    assert source.paths == paths
    assert source.place_of(2) == (paths[2], 0, 0)
    assert repr(source) == f"ImageFolderDataSource({str(pets)!r}, 3 images of 2 classes)"
    chosen = ImageFolderDataSource(pets, classes=["dog"])
    assert [record["label"] for record in MapDataset.source(chosen)] == [0, 0]
    turned = ImageFolderDataSource(pets, classes=["dog", "cat"])
    assert [record["label"] for record in MapDataset.source(turned)] == [0, 0, 1]


def test_decoded_images(pets: Path) -> None:
    source = ImageFolderDataSource(pets, decode=True)
    sizes = [len(name) for name in ("cat/deep/er/1.png", "dog/2.png", "dog/10.PNG")]
    wanted = [
        {"image": np.full((2, 3, 3), size, dtype=np.uint8), "label": label, "path": path}
        for size, label, path in zip(sizes, (0, 1, 1), source.paths, strict=True)
    ]
    check_source(source, wanted)
    batch: Any = MapDataset.source(source).batch(3)[0]
    assert batch["image"].shape == (3, 2, 3, 3)
    assert batch["label"].tolist() == [0, 1, 1]
    # What is decoded belongs to whoever asked.
    source[0]["image"][:] = 0


GREY = np.arange(256, dtype=np.uint8).reshape(16, 16)
COLOURS = np.stack([GREY, GREY.T, 255 - GREY], axis=2)
TURNED = Image.fromarray(COLOURS)
TURNED.getexif()[0x0112] = 6
PICTURES = {
    "colours": (encoded(COLOURS), COLOURS),
    "bmp": (encoded(COLOURS, "BMP"), COLOURS),
    "webp": (encoded(COLOURS, "WEBP", lossless=True), COLOURS),
    "grey": (encoded(GREY), np.stack([GREY] * 3, axis=2)),
    "transparent": (encoded(np.dstack([COLOURS, GREY])), COLOURS),
    "palette": (
        encoded(Image.fromarray(GREY // 128 * 255).convert("P")),
        np.stack([GREY // 128 * 255] * 3, axis=2),
    ),
    "16 bits": (encoded(GREY.astype(np.uint16) * 257), np.stack([GREY] * 3, axis=2)),
    "1 bit": (
        encoded(Image.fromarray(GREY).point(lambda value: 255 * (value > 127), mode="1")),
        np.stack([255 * (GREY > 127).astype(np.uint8)] * 3, axis=2),
    ),
    "orientation": (encoded(TURNED, exif=TURNED.getexif()), COLOURS),
}


@pytest.mark.parametrize("name", PICTURES)
def test_kinds_of_images(name: str) -> None:
    data, wanted = PICTURES[name]
    image = images.decode_image(data, "'a'")
    assert image.dtype == np.uint8
    assert image.tolist() == wanted.tolist()
    assert image.flags.writeable


def test_images_that_cannot_be_decoded(pets: Path) -> None:
    photograph = encoded(COLOURS, "JPEG")
    path = pets / "dog" / "2.png"
    source = ImageFolderDataSource(pets, decode=True)
    floats = encoded(np.zeros((4, 4), dtype=np.float32), "TIFF")
    for content in (b"", b"no image", photograph[: len(photograph) // 2], encoded(COLOURS)[:60]):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=r"image '.*2\.png', record 1, cannot be decoded"):
            source[1]
        with pytest.raises(RecordError, match=r"image '.*2\.png', record 1, cannot be decoded"):
            list(MapDataset.source(source))
    path.write_bytes(floats)
    with pytest.raises(RecordError, match=r"of mode 'F', and not from 0 to 255.*decode=False"):
        source[1]
    assert len(source.__getitems__([0, 2])) == 2


def test_folders_that_are_no_classes(pets: Path, tmp_path: Path) -> None:
    def refused(error: type[Exception], match: str, folder: Path, **options: Any) -> None:
        with pytest.raises(error, match=match):
            ImageFolderDataSource(folder, **options)

    refused(MissingFileError, "there is no folder", pets / "none")
    refused(FileError, "cannot be read: Not a directory", pets / "readme.md")
    refused(MissingFileError, "no folders in it, and each would be a class", pets / "dog")
    refused(
        MissingFileError, r"no class 'fox' in .*there are \['cat', 'dog'\]", pets, classes=["fox"]
    )
    refused(PlanError, "a class is named twice", pets, classes=["dog", "dog"])
    refused(MissingFileError, "class 'cat' .*no file that ends in .txt", pets, endings=[".txt"])
    (pets / "ant").mkdir()
    refused(MissingFileError, r"class 'ant' .*`classes=\[...\]`", pets)
    assert len(ImageFolderDataSource(pets, classes=["cat", "dog"])) == 3


def test_links_to_classes(pets: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "wolf").symlink_to(pets / "dog")
    assert len(ImageFolderDataSource(other)) == 2
    # A link to a folder around it is no further folder.
    (pets / "dog" / "again").symlink_to(pets / "dog")
    assert len(ImageFolderDataSource(other)) == 2


def test_without_pillow(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images.pillow_images.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "PIL", None)
        assert len(ImageFolderDataSource(pets)) == 3
        with pytest.raises(MissingPackageError, match=r'pillow.*pip install "bushel\[images\]"'):
            ImageFolderDataSource(pets, decode=True)
    assert pickle.loads(pickle.dumps(ImageFolderDataSource(pets, decode=True)))[0]["label"] == 0
