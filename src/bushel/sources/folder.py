"""Files that are one record each: any files, or images in a folder for each class."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from bushel.core.pillow import pillow_images
from bushel.core.positions import Keys
from bushel.errors import FileError, MissingFileError, PlanError
from bushel.files.local import open_file
from bushel.files.paths import expand, is_remote, natural
from bushel.sources.endings import IMAGES
from bushel.sources.images import decode_image
from bushel.sources.keyed import KeyedSource, shown_files


class FilesDataSource(KeyedSource):
    """Whole files: records are dicts with the bytes of one as `data`, and its `path`.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> for number in (10, 9):
    ...     _ = pathlib.Path(folder.name, f"{number}.txt").write_text(f"page {number}")
    >>> source = FilesDataSource(f"{folder.name}/*.txt")
    >>> len(source), source[0]["data"], os.path.basename(source[0]["path"])
    (2, b'page 9', '9.txt')
    >>> folder.cleanup()

    Args:
        paths: A file, a glob, a folder, or a sequence of them. The files of a glob or folder
            are sorted by name, with numbers as numbers. Hidden files of a folder are left out.
        endings: What the names of a folder's files end in, as `(".txt", ".md")`; all by default.
    """

    def __init__(self, paths: Any, *, endings: str | Sequence[str] = ()) -> None:
        endings = (endings,) if isinstance(endings, str) else tuple(endings)
        self._paths = expand(paths, tuple(ending.lower() for ending in endings))

    @property
    def paths(self) -> list[str]:
        """The files, in the order of their records."""
        return list(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def _records(self, keys: Keys) -> list[Any]:
        return [{"data": _content(path), "path": path} for path in _chosen(self._paths, keys)]

    def place_of(self, key: int) -> tuple[str, int, int]:
        """The file of a record, its number in it, and the byte at which it starts: 0 and 0."""
        return _chosen(self._paths, self._checked([key]))[0], 0, 0

    def __repr__(self) -> str:
        return f"FilesDataSource({shown_files(self._paths)})"


class ImageFolderDataSource(KeyedSource):
    """Images in a folder for each class: `train/cat/1.jpg`, `train/dog/1.jpg`.

    Records are dicts of the `image`, its `label` and its `path`. A label is the number of the
    class among the names of the folders, sorted. Below them, images may lie in further folders.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name in ("cat", "dog"):
    ...     pathlib.Path(folder.name, name).mkdir()
    ...     _ = pathlib.Path(folder.name, name, "1.jpg").write_bytes(b"...")
    >>> source = ImageFolderDataSource(folder.name)
    >>> source.classes, source[1]["label"], source[1]["image"]
    (('cat', 'dog'), 1, b'...')
    >>> folder.cleanup()

    Args:
        folder: The folder with a folder for each class. One that is far away has its images
            right below those.
        decode: Whether images are arrays of height × width × 3, red, green and blue from 0 to
            255, instead of the bytes of their files. That needs Pillow. An orientation that the
            EXIF data ask for is not applied, as elsewhere in the field: apply it with
            `PIL.ImageOps.exif_transpose` in a `map` on the bytes where it matters.
        classes: The names of the folders to read, in the order of their labels.
        endings: What the names of images end in. Other files are left out, as are hidden ones.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        decode: bool = False,
        classes: Sequence[str] | None = None,
        endings: Sequence[str] = IMAGES,
    ) -> None:
        if decode:
            pillow_images()
        self._folder = os.path.expanduser(os.fspath(folder))
        self._decode = decode
        endings = tuple(ending.lower() for ending in endings)
        found = _by_class(self._folder, endings)
        self._classes = tuple(sorted(found) if classes is None else classes)
        self._paths: list[str] = []
        self._labels: list[int] = []
        if len(set(self._classes)) < len(self._classes):
            raise PlanError(f"a class is named twice: {list(self._classes)}.")
        for label, name in enumerate(self._classes):
            files = _of_class(self._folder, name, found, endings)
            self._paths += files
            self._labels += [label] * len(files)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; a label is a place among them."""
        return self._classes

    @property
    def paths(self) -> list[str]:
        """The files, in the order of their records."""
        return list(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def _records(self, keys: Keys) -> list[Any]:
        return [self._record(key) for key in keys.tolist()]

    def _record(self, key: int) -> dict[str, Any]:
        path = self._paths[key]
        image: Any = _content(path)
        if self._decode:
            image = decode_image(image, f"{path!r}, record {key},")
        return {"image": image, "label": self._labels[key], "path": path}

    def place_of(self, key: int) -> tuple[str, int, int]:
        """The file of a record, its number in it, and the byte at which it starts: 0 and 0."""
        return _chosen(self._paths, self._checked([key]))[0], 0, 0

    def __repr__(self) -> str:
        decoded = ", decode=True" if self._decode else ""
        return (
            f"ImageFolderDataSource({self._folder!r}, {len(self):,} images of "
            f"{len(self._classes):,} classes{decoded})"
        )


def _chosen(paths: Sequence[str], keys: Keys) -> list[str]:
    return [paths[key] for key in keys.tolist()]


def _content(path: str) -> bytes:
    # Opened for this one read, as a file that is a record is not needed again soon.
    file = open_file(path)
    return file.read(0, file.size)


def _by_class(folder: str, endings: tuple[str, ...]) -> dict[str, list[str]]:
    """The images of each folder within a folder."""
    if is_remote(folder):
        found: dict[str, list[str]] = {}
        for path in expand(f"{folder.rstrip('/')}/*/*"):
            *_, name, file = path.split("/")
            if not _is_hidden(name) and not _is_hidden(file) and file.lower().endswith(endings):
                found.setdefault(name, []).append(path)
        return found
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        raise MissingFileError(f"there is no folder {folder!r}.") from None
    except OSError as error:
        raise _unreadable(error) from None
    names = [name for name in names if not _is_hidden(name)]
    if not names:
        raise MissingFileError(
            f"the folder {folder!r} has no folders in it, and each would be a class. Files without "
            "classes are read by `FilesDataSource`."
        )
    return {name: _below(os.path.join(folder, name), endings) for name in names}


def _below(folder: str, endings: tuple[str, ...]) -> list[str]:
    """The images in a folder and the folders within."""
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    # Links are followed, as classes of one set are often links into another.
    for place, inner, files in os.walk(folder, onerror=_refuse, followlinks=True):
        status = os.stat(place)
        if (status.st_dev, status.st_ino) in seen:
            inner.clear()  # A link to a folder around it.
            continue
        seen.add((status.st_dev, status.st_ino))
        inner[:] = [name for name in inner if not _is_hidden(name)]
        found += [
            os.path.join(place, name)
            for name in files
            if not _is_hidden(name) and name.lower().endswith(endings)
        ]
    return sorted(found, key=natural)


def _refuse(error: OSError) -> None:
    """Raises which folder cannot be read; otherwise its files would be missing silently."""
    raise _unreadable(error)


def _unreadable(error: OSError) -> FileError:
    return FileError(f"the folder {error.filename!r} cannot be read: {error.strerror}.")


def _of_class(
    folder: str, name: str, found: dict[str, list[str]], endings: Iterable[str]
) -> list[str]:
    files = found.get(name)
    if files is None:
        raise MissingFileError(
            f"there is no class {name!r} in {folder!r}; there are {sorted(found)[:10]}."
        )
    if not files:
        raise MissingFileError(
            f"the folder of class {name!r} in {folder!r} has no file that ends in "
            f"{', '.join(endings)}. Name the classes to read, `classes=[...]`, or other `endings`. "
            f"Other files: `bushel.sources.FilesDataSource({os.path.join(folder, '*/*')!r})`."
        )
    return files


def _is_hidden(name: str) -> bool:
    return name.startswith(".")
