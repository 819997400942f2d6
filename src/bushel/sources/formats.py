"""The list of formats, and how one is detected: by first bytes, by file name endings, by folder."""

import logging
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from bushel.core.frozen import frozen
from bushel.errors import MissingFileError, PlanError, note_options
from bushel.files.local import open_file
from bushel.files.paths import expand, is_remote, without_query
from bushel.sources import endings
from bushel.sources.shard_folder.index_file import NAME as INDEX
from bushel.sources.shard_folder.index_file import kind_of_index
from bushel.sources.tfrecord.crc import masked_crcs
from bushel.sources.written.manifest import find_manifest

_log = logging.getLogger("bushel")

# The bytes read for detection: a tar file has its mark at byte 257.
_HEAD_BYTES = 1024


def _starts(*marks: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(marks)


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _is_tfrecord(head: bytes) -> bool:
    # It has no mark of its own, but a checksum over the length of the first record.
    return len(head) >= 12 and int(masked_crcs([head[:8]])[0]) == int.from_bytes(
        head[8:12], "little"
    )


def _by_name_alone(head: bytes) -> bool:
    return False


@frozen
class Format:
    """A format: its name, its source, and how to recognise it."""

    name: str
    # Module and class.
    source: str
    endings: tuple[str, ...]
    # Whether a file with this beginning has the format, whatever its name.
    begins: Callable[[bytes], bool] = _by_name_alone
    # For folders: the entries of one that is a dataset as a whole.
    folder_has: tuple[str, ...] = ()

    def open(self, paths: Any, **options: Any) -> Any:
        """Makes the source."""
        module, _, name = self.source.partition(":")
        source = getattr(import_module(f"bushel.sources.{module}"), name)
        try:
            return source(paths, **options)
        except TypeError as error:
            note_options(error, source, options)
            raise


FORMATS = (
    Format(
        "arrayrecord",
        "array_record:ArrayRecordDataSource",
        endings.ARRAY_RECORD,
        _starts(bytes.fromhex("83af70d10d884a3f")),
    ),
    Format("parquet", "arrow.parquet:ParquetDataSource", endings.PARQUET, _starts(b"PAR1")),
    Format(
        "arrow",
        "arrow.source:ArrowDataSource",
        endings.ARROW,
        _starts(b"ARROW1", b"\xff\xff\xff\xff"),
    ),
    Format("numpy", "arrays.numpy:NumpyDataSource", endings.NUMPY, _starts(b"\x93NUMPY")),
    Format("tar", "tar.source:TarDataSource", endings.TAR, _is_tar),
    Format("tfrecord", "tfrecord.source:TFRecordDataSource", endings.TFRECORD, _is_tfrecord),
    Format("jsonl", "text.lines:JsonLinesDataSource", endings.JSON_LINES),
    Format("csv", "text.csv:CsvDataSource", endings.CSV),
    Format("text", "text.lines:TextLinesDataSource", endings.TEXT),
    Format("bagz", "bagz:BagzDataSource", endings.BAGZ),
    Format(
        "zarr",
        "arrays.zarr:ZarrDataSource",
        (".zarr",),
        folder_has=("zarr.json", ".zarray", ".zgroup"),
    ),
    Format("lance", "lance:LanceDataSource", (".lance",), folder_has=("_versions",)),
    Format("energon", "energon:EnergonDataSource", (), folder_has=(".nv-meta",)),
    # Shards with an index that tells which of the two formats they have.
    Format("mds", "shard_folder.mds:MDSDataSource", (".mds",)),
    Format("litdata", "shard_folder.litdata:LitDataDataSource", ()),
    # A folder with a folder for each class; images that are named one by one are files.
    Format("images", "folder:ImageFolderDataSource", ()),
    Format(
        "files",
        "folder:FilesDataSource",
        endings.IMAGES,
    ),
    # The output of `write`: a folder with a manifest, whatever the format of its shards.
    Format("written", "written.source:WrittenDataSource", ()),
)
BY_NAME = {known.name: known for known in FORMATS}


def format_of(paths: Any, format: str | None = None) -> Format:
    """The format of files; `format` is the user's choice."""
    if format is not None:
        if format not in BY_NAME:
            raise PlanError(f"there is no format {format!r}; there are {', '.join(BY_NAME)}.")
        return BY_NAME[format]
    if find_manifest(paths) is not None:
        return BY_NAME["written"]
    if isinstance(paths, (str, os.PathLike)):
        path = os.fspath(paths)
        folder = _folder_format(path)
        if folder is not None:
            return folder
    files = expand(paths)
    _refuse_indexes(paths, files)
    found = {path: _file_format(path) for path in _some_of(files)}
    formats = {known.name for known in found.values() if known is not None}
    unknown = [path for path, known in found.items() if known is None]
    if len(formats) == 1 and not unknown:
        return BY_NAME[formats.pop()]
    _refuse_whole_folders(paths)
    if formats:
        told = ", ".join(f"{path!r}: {made.name if made else '?'}" for path, made in found.items())
        raise PlanError(
            f"these files have several formats ({told:.500}). Select those of one format by a "
            "glob, or name the format by `format=`."
        )
    raise PlanError(
        f"the format of {unknown[0]!r} is not recognised, neither by its first bytes nor by its "
        f"name. Name it by `format=`, one of {', '.join(BY_NAME)}."
    )


def _refuse_indexes(paths: Any, files: Sequence[str]) -> None:
    """Raises if one of several files is an index of shards, which is JSON like their records."""
    for path in files:
        known = _by_index(path) if path.rpartition("/")[2] == INDEX else None
        if known is not None:
            _refuse_whole_folders(paths)
            raise _opened_by_itself(path, "an index", known, len(files))


def _refuse_whole_folders(paths: Any) -> None:
    """Raises if one of several paths is a folder that is a dataset as a whole."""
    several = [] if isinstance(paths, (str, os.PathLike)) else [os.fspath(path) for path in paths]
    for path in several:
        known = _whole_folder(path) if os.path.isdir(path) else None
        if known is not None:
            raise _opened_by_itself(path, "a folder", known, len(several))


def _opened_by_itself(path: str, what: str, known: Format, count: int) -> PlanError:
    return PlanError(
        f"{path!r} is {what} of the format {known.name!r}, which is opened by itself and "
        f"not in a list (this one has {count}). Write `bushel.open({path!r})`; "
        "several are one dataset by `bushel.MapDataset.concatenate([bushel.MapDataset"
        ".source(bushel.open(folder)) for folder in folders])`."
    )


def _some_of(files: Sequence[str]) -> list[str]:
    """A few of many: the first, the last, and one of each ending."""
    by_ending = {"".join(_endings(path)[-1:]): path for path in reversed(files)}
    return list(dict.fromkeys([files[0], files[-1], *by_ending.values()]))


def _endings(path: str) -> list[str]:
    """The endings of a name, lower case, without that of a compression: [".tar", ".x"].

    >>> _endings("/data.v2/Some.jsonl.GZ")
    ['.jsonl']
    """
    name = os.path.basename(without_query(path))
    parts = [f".{part.lower()}" for part in name.split(".")[1:]]
    if parts and parts[-1] in endings.COMPRESSED:
        parts.pop()
    if parts and parts[-1] == ".tgz":
        parts[-1] = ".tar"
    return parts


def _by_ending(path: str) -> Format | None:
    for ending in reversed(_endings(path)):
        # Shards may be numbered after the ending: x.tfrecord-00000-of-00016.
        plain = ending.split("-")[0]
        for known in FORMATS:
            if plain in known.endings:
                return known
    return None


def _file_format(path: str) -> Format | None:
    file = open_file(path)
    head = file.read(0, min(file.size, _HEAD_BYTES))
    named = _by_ending(path)
    if endings.compression_of(head) is not None:
        return named
    for known in FORMATS:
        if known.begins(head):
            return known
    if named is not None:
        return named  # If it is not, the source will say what is wrong.
    if head.lstrip()[:1] == b"{":
        return BY_NAME["jsonl"]
    return None


def _folder_format(path: str) -> Format | None:
    """The format of a folder that is a dataset as a whole."""
    if is_remote(path) or not os.path.isdir(path):
        if is_remote(path):
            named = _by_ending(path.rstrip("/"))
            return named if named is not None and named.folder_has else _by_index(path)
        return _by_index(path)
    whole = _whole_folder(path)
    if whole is not None:
        return whole
    names = set(os.listdir(path))
    files = [name for name in names if os.path.isfile(os.path.join(path, name))]
    visible = [name for name in files if name[0] not in "._"]
    common = _common_format(path, visible)
    if common is None and any(os.path.isdir(os.path.join(path, name)) for name in names):
        return BY_NAME["images"]
    if not visible:
        raise MissingFileError(f"the folder {path!r} is empty.")
    return common


def _whole_folder(path: str) -> Format | None:
    """The format of a local folder whose entries show that it is one dataset."""
    names = set(os.listdir(path))
    for known in FORMATS:
        if names & set(known.folder_has):
            return known
    return _by_index(path) if INDEX in names else None


def _by_index(path: str) -> Format | None:
    """The format of shards by their index, if a path is that index or its folder."""
    folder, _, name = path.rstrip("/").rpartition("/")
    if name == INDEX:
        kind = kind_of_index(folder or ".")
    elif os.path.isdir(path) or (is_remote(path) and not _endings(path) and "*" not in path):
        kind = kind_of_index(path)
    else:
        kind = None
    return None if kind is None else BY_NAME[kind]


def _common_format(folder: str, names: Sequence[str]) -> Format | None:
    """The one format of a folder's files, beside others without a format."""
    found = {known.name: known for name in names if (known := _by_ending(name)) is not None}
    if len(found) == 1:
        if "text" in found:
            _tell_of_others(folder, names)
        return next(iter(found.values()))
    if len(found) > 1:
        raise PlanError(
            f"the folder {folder!r} has files of several formats: {', '.join(sorted(found))}. Name "
            f"those of one by a glob, as {os.path.join(folder, '*' + _an_ending(found))!r}, or by "
            "`format=`."
        )
    return None


def _tell_of_others(folder: str, names: Sequence[str]) -> None:
    """Warns if a note may be taken for the data: a readme.txt beside many sounds."""
    others = sorted(name for name in names if _by_ending(name) is None)
    texts = len(names) - len(others)
    if len(others) > texts:
        _log.warning(
            "of the folder %r, %d file%s read, as text, and %d others are not, such as %r. "
            "`format='files'` makes a record of each file; a glob selects some of them.",
            folder,
            texts,
            " is" if texts == 1 else "s are",
            len(others),
            others[0],
        )


def _an_ending(found: dict[str, Format]) -> str:
    return next(known.endings[0] for known in found.values())
