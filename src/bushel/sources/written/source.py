"""The source over a written dataset: its elements, verified, with their origins."""

import hashlib
import os
from typing import Any

import numpy as np

from bushel.core.per_process import PerProcess
from bushel.core.positions import Keys
from bushel.errors import FileError, MissingFileError, RecordError
from bushel.files.copies import local_path
from bushel.files.local import open_file
from bushel.files.paths import is_remote
from bushel.files.progress_line import ProgressLine
from bushel.sources.keyed import KeyedSource, by_part
from bushel.sources.written.coding import coding_of
from bushel.sources.written.element_layout import MisfitError
from bushel.sources.written.manifest import Manifest, Part, find_manifest, read_manifest
from bushel.sources.written.number_columns import NumberColumns, number_columns
from bushel.sources.written.origins import OriginColumns, RecordOrigin, read_origins
from bushel.sources.written.shard_names import extra_shards
from bushel.sources.written.token_shards import TokenShards

_AT_ONCE = 8 << 20


class WrittenDataSource(KeyedSource):
    """The elements that `write` wrote, in their order.

    When it is made, the shards are compared with the manifest: all have to be there with the
    recorded sizes, and no others beside them. With `verify`, every byte is read and compared.

    >>> import tempfile
    >>> from bushel import MapDataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> squares = MapDataset.range(5).map(lambda x: {"x": x, "square": x * x})
    >>> _ = squares.write(f"{folder.name}/squares-*.jsonl", shards=2, workers=0)
    >>> source = WrittenDataSource(folder.name)
    >>> len(source), source[3]
    (5, {'x': 3, 'square': 9})
    >>> folder.cleanup()

    Args:
        path: The folder, the pattern of the shards in it, or the manifest.
        verify: Whether the bytes of all files are read, and their digests compared.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False) -> None:
        found = find_manifest(path)
        if found is None:
            raise MissingFileError(f"there is no manifest of bushel's in or beside {path!r}.")
        self._manifest = read_manifest(found)
        check_files(self._manifest)
        if verify:
            verify_files(self._manifest)
        shards = [shard for shard in self._manifest.shards if shard.records]
        self._shards = shards
        self._ends: Keys = np.cumsum([shard.records for shard in shards], dtype=np.int64)
        self._length = self._manifest.records
        self._inner = _inner(self._manifest) if shards else None
        if self._inner is not None and len(self._inner) != self._length:
            raise FileError(
                f"the shards of {self._manifest.path!r} have {len(self._inner):,} records, and "
                f"should have {self._length:,}. Copy or write them anew."
            )
        self._start()

    def _start(self) -> None:
        self._origins = _Origins()
        layout = self._manifest.layout
        self._number_columns: NumberColumns | None = None
        if layout is not None:
            self._number_columns = number_columns(self._manifest.format, layout)
            try:
                self._decode = coding_of(self._manifest.format, layout).decode
            except (MisfitError, KeyError) as error:
                raise FileError(
                    f"the description of elements in {self._manifest.path!r} is not valid: {error}."
                ) from None

    @property
    def manifest(self) -> Manifest:
        """What was written, and by which pipeline."""
        return self._manifest

    @property
    def paths(self) -> list[str]:
        """The shards, in the order of their records."""
        return self._manifest.paths

    def __len__(self) -> int:
        return self._length

    def _records(self, keys: Keys) -> list[Any]:
        if not len(keys):
            return []
        assert self._inner is not None
        records = self._inner.__getitems__(keys)
        try:
            return list(map(self._decode, records))
        except Exception as error:
            for key, record in zip(keys.tolist(), records, strict=True):
                try:
                    self._decode(record)
                except Exception as own:
                    file, number, _ = self.place_of(key)
                    raise RecordError(
                        f"record {number:,} of {file!r} does not match its manifest: {own}."
                    ) from own
            raise error

    def read_columns(self, keys: Keys) -> Any:
        """Many elements as columns, if they are only numbers, in a table."""
        if self._number_columns is None or self._inner is None:
            return None
        return self._number_columns.of(self._inner.read_columns(keys), len(keys))

    def place_of(self, key: int) -> tuple[str, int, int | None]:
        """The shard of a record, its number in it, and its byte if known."""
        ((number, _, inside),) = by_part(self._checked([key]), self._ends)
        path = self._manifest.path_of(self._shards[number].file)
        start = None
        place_of = getattr(self._inner, "place_of", None)
        if place_of is not None:
            _, _, start = place_of(key)
        return path, int(inside[0]), start

    def origins_of(self, key: int) -> tuple[RecordOrigin, ...] | None:
        """The records from which a record was made, in the sources of the pipeline that wrote it.

        None if the manifest does not have them.
        """
        ((number, _, inside),) = by_part(self._checked([key]), self._ends)
        shard = self._shards[number]
        if shard.index is None or self._manifest.no_origins is not None:
            return None
        path = self._manifest.path_of(shard.index)
        columns: OriginColumns = self._origins.get((path, shard.records))
        names = [str(source.get("name", "")) for source in self._manifest.sources]
        return columns.of(int(inside[0]), names)

    def verify(self) -> None:
        """Reads all files, and compares their bytes with the manifest."""
        check_files(self._manifest)
        verify_files(self._manifest)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        state.pop("_decode", None)
        del state["_origins"], state["_number_columns"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def __repr__(self) -> str:
        shards = len(self._manifest.shards)
        return (
            f"WrittenDataSource({self._manifest.path!r}, {shards:,} shard{'s' * (shards != 1)}, "
            f"{self._length:,} records)"
        )


class _Origins(PerProcess[tuple[str, int], OriginColumns]):
    def __init__(self) -> None:
        super().__init__(most=64)

    def _make(self, key: tuple[str, int]) -> OriginColumns:
        path, records = key
        try:
            return read_origins(local_path(path), records)
        except FileNotFoundError:
            raise MissingFileError(
                f"{path!r} is missing, which has the origins of the records of a shard."
            ) from None


def _inner(manifest: Manifest) -> Any:
    """The source of the shards that have records, by their format."""
    from bushel.sources.formats import BY_NAME  # It names this module.

    shards = [shard for shard in manifest.shards if shard.records]
    paths = [manifest.path_of(shard.file) for shard in shards]
    if manifest.format == "tokens":
        return TokenShards(manifest)
    if manifest.format not in BY_NAME:
        raise FileError(
            f"the manifest {manifest.path!r} has the format {manifest.format!r:.50}, which this "
            "release of bushel does not read."
        )
    return BY_NAME[manifest.format].open(paths)


def check_files(manifest: Manifest) -> None:
    """Compares names and sizes with the files of the folder."""
    found = _sizes(manifest)
    for shard in manifest.shards:
        size = found.get(shard.file.name)
        path = manifest.path_of(shard.file)
        if size is None:
            raise MissingFileError(
                f"{path!r} is missing: the manifest {manifest.path!r} has it, with "
                f"{shard.records:,} records. Copy it again, or write the dataset again."
            )
        if size != shard.file.bytes:
            raise FileError(
                f"{path!r} has changed: it had {shard.file.bytes:,} bytes when it was written, and "
                f"has {size:,} now. Copy it again, or write the dataset again."
            )
    extra = extra_shards(manifest.pattern, found, {s.file.name for s in manifest.shards})
    if extra:
        raise FileError(
            f"{manifest.path_of(Part(extra[0], 0, ''))!r} is no part of the dataset, though it is "
            f"called as one: the manifest {manifest.path!r} does not have it. Remove it, or write "
            "the dataset again."
        )


def _sizes(manifest: Manifest) -> dict[str, int]:
    """The files of the folder, and their sizes."""
    if is_remote(manifest.path):
        from bushel.files.uploads import listed

        return listed(manifest.folder)
    with os.scandir(manifest.folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


def verify_files(manifest: Manifest) -> None:
    """Compares all bytes with their digests."""
    parts: list[Part] = []
    for shard in manifest.shards:
        parts += [shard.file] if shard.index is None else [shard.file, shard.index]
    total = sum(part.bytes for part in parts)
    done = 0
    with ProgressLine("checking", total) as progress:
        for part in parts:
            path = manifest.path_of(part)
            try:
                file = open_file(path)
            except FileNotFoundError:
                raise MissingFileError(f"{path!r} is missing, and the manifest has it.") from None
            digest = hashlib.sha256()
            for start in range(0, file.size, _AT_ONCE):
                digest.update(file.read(start, min(start + _AT_ONCE, file.size)))
                progress.to(done + start)
            done += part.bytes
            if digest.hexdigest() != part.sha256:
                raise FileError(
                    f"{path!r} has changed: its bytes are not those that were written (SHA-256 "
                    f"{digest.hexdigest()}, and not {part.sha256}). Copy it again, or write the "
                    "dataset again."
                )
