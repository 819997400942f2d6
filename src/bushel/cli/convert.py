"""`bushel convert`: records of one format written to files of another.

A conversion works in a folder of its own beside the files it is to make. There each shard is
written under a private name and gets its own when it is whole. When all are there, they move to
where they belong, and the folder goes. Who is killed before finds the shards that were whole
when started again, and goes on with the others.
"""

import json
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

from bushel.cli.conversion_folder import ConversionFolder
from bushel.cli.show import size
from bushel.core.machine import available_cores
from bushel.core.options import MultiprocessingOptions, ReadOptions
from bushel.dataset import MapDataset
from bushel.errors import BushelError, FileError, PlanError
from bushel.files.local import open_file
from bushel.files.paths import is_remote
from bushel.files.whole import replacing
from bushel.sources.formats import BY_NAME
from bushel.write.shard_counts import ShardCounts, shared_counts, shown
from bushel.write.table_rows import schema_from, schema_of, schema_text
from bushel.write.tasks import by_workers
from bushel.write.writers import TARGETS, Target, to_sample

# More than so much becomes several files, which several processes write.
_SHARD_BYTES = 256 << 20
# Records that are looked at for the columns of a table, where the source does not say them: some
# at the beginning, and some from everywhere.
LOOKED_AT = 4096
_READ_AT_ONCE = 64
_REPORT_EVERY = 256


def convert(
    paths: Any,
    to: str,
    *,
    format: str,
    options: dict[str, Any],
    to_format: str | None = None,
    shards: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    look_at: int = LOOKED_AT,
) -> list[str]:
    """Writes the records of a source to files of another format; returns their names."""
    target = _target(to, to_format)
    if is_remote(to):
        raise PlanError(f"`convert` writes files on this machine, and {to!r} is elsewhere.")
    paths = [path if is_remote(path) else _absolute(path) for path in _listed(paths)]
    described = json.dumps([paths, format, options])
    source = _opened(described)
    stamps = {path: _stamp(path) for path in dict.fromkeys(getattr(source, "paths", []))}
    if shards is None:
        nbytes = sum(nbytes for _, nbytes in stamps.values())
        shards = min(max(1, -(-nbytes // _SHARD_BYTES)), max(1, len(source)))
    if shards < 1:
        raise PlanError(f"--shards is a number of files, and cannot be {shards}.")
    workers = available_cores() if workers is None else workers
    if workers < 0:
        raise PlanError(f"--workers is a number of processes, and cannot be {workers}.")
    if look_at < 1:
        raise PlanError(f"--look-at is a number of records, and cannot be {look_at}.")
    names = _names(to, shards)
    plan = {
        "version": 1,
        "from": paths,
        "format": format,
        "options": options,
        "files": {path: stamp for path, (stamp, _) in stamps.items()},
        "records": len(source),
        "to": target.name,
        "shards": shards,
        "schema": None,
    }
    if target.is_table:
        rows = _Encoded(target.name, described, len(source))
        plan["schema"] = _schema_text(getattr(source, "schema", None), rows, look_at)
    with ConversionFolder(to, plan) as work:
        if not work.is_moving:
            there = [name for name in names if os.path.exists(name)]
            if there and not overwrite:
                raise PlanError(f"{there[0]!r} is there already; --overwrite replaces it.")
            _write_all(work, target, plan, workers)
        work.finish(names)
    told = names[0] if shards == 1 else f"{names[0]} and {shards - 1} more"
    nbytes = sum(os.path.getsize(name) for name in names)
    print(f"{len(source):,} records in {told}, {size(nbytes)}")
    return names


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _listed(paths: Any) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def _target(to: str, name: str | None) -> Target:
    if name is not None:
        return TARGETS[name]
    for target in TARGETS.values():
        if to.lower().endswith(target.endings):
            return target
    endings = ", ".join(target.endings[0] for target in TARGETS.values())
    raise PlanError(f"{to!r} does not end in {endings}; name the format with --to-format.")


def _names(to: str, shards: int) -> list[str]:
    if shards == 1:
        return [to]
    stem, ending = os.path.splitext(to)
    return [f"{stem}-{number:05d}-of-{shards:05d}{ending}" for number in range(shards)]


def _stamp(path: str) -> tuple[str, int]:
    if os.path.isdir(path):
        return str(os.stat(path).st_mtime_ns), 0
    file = open_file(path)
    return file.stamp, file.size


@lru_cache(maxsize=1)
def _opened(text: str) -> Any:
    """The source, once in each process."""
    paths, format, options = json.loads(text)
    return BY_NAME[format].open(paths[0] if len(paths) == 1 else paths, **options)


def _schema_text(schema: Any, rows: "_Encoded", look_at: int) -> str:
    """The columns of the tables that are written, the same for all of them."""
    if schema is None:
        first = range(min(-(-look_at // 2), len(rows)))
        others = range(len(first), len(rows), max(1, -(-2 * len(rows) // look_at)))
        keys = [*first, *others]
        some = [keys[start : start + _READ_AT_ONCE] for start in range(0, len(keys), _READ_AT_ONCE)]
        schema = schema_of(chain.from_iterable(map(rows.__getitems__, some)))
    return schema_text(schema)


def _bounds(records: int, shards: int) -> list[int]:
    return [records * number // shards for number in range(shards + 1)]


def _write_all(work: ConversionFolder, target: Target, plan: dict[str, Any], workers: int) -> None:
    pending, shards, records = work.pending(), plan["shards"], plan["records"]
    bounds = _bounds(records, shards)
    done = sum(bounds[n + 1] - bounds[n] for n in range(shards) if n not in set(pending))
    if done:
        print(f"bushel: {done:,} of {records:,} records were written before", file=sys.stderr)
    described = json.dumps([plan["from"], plan["format"], plan["options"]])
    with (
        shared_counts(shards) as counts,
        shown("converting", records, "records", counts, done, asked=None),
    ):
        shard = _Shard(target.name, described, work.folder, bounds, plan["schema"], counts)
        if len(pending) == 1 and workers:
            shard.write(pending[0], workers)
        else:
            for _ in by_workers(shard, pending, workers):
                pass


class _Shard:
    """Writes one shard; runs in a worker."""

    def __init__(
        self,
        target: str,
        described: str,
        folder: str,
        bounds: list[int],
        schema: str | None,
        counts: ShardCounts,
    ) -> None:
        self._target, self._described, self._schema = target, described, schema
        self._folder, self._bounds, self._counts = folder, bounds, counts

    def __call__(self, number: int) -> int:
        self.write(number, 0)
        return number

    def write(self, number: int, workers: int) -> None:
        """Writes a shard, alone or with the help of several processes."""
        start, stop = self._bounds[number], self._bounds[number + 1]
        encoded: Any = ()
        if stop > start:
            source = _Encoded(self._target, self._described, self._bounds[-1])
            encoded = MapDataset.source(source)[start:stop]
            if workers:
                stream = encoded.to_iter_dataset(ReadOptions(0, 0))
                encoded = stream.mp_prefetch(MultiprocessingOptions(workers, 2))
        options = {} if self._schema is None else {"schema": schema_from(self._schema)}
        _write_whole(
            os.path.join(self._folder, f"part-{number:05d}"),
            TARGETS[self._target],
            _counted(encoded, self._counts, number, stop - start),
            options,
        )


class _Encoded:
    """The records of a source as a format has them; it is opened where they are read.

    No record is None here, which a dataset would pass over.
    """

    def __init__(self, target: str, described: str, count: int) -> None:
        self._target, self._described, self._count = target, described, count
        paths, format, options = json.loads(described)
        # Of pictures that are not decoded, the folder with the classes.
        is_samples = format == "images" and target == "tar" and not options.get("decode")
        self._folder = paths[0] if is_samples else None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, key: int) -> Any:
        return self._encode(_opened(self._described)[key], key)

    def _encode(self, record: Any, key: int) -> Any:
        if self._folder is not None:
            record = to_sample(record, self._folder)
        return TARGETS[self._target].encode(record, key)

    def __getitems__(self, keys: list[int]) -> list[Any]:
        source, encode = _opened(self._described), self._encode
        read_many = getattr(source, "__getitems__", None)
        records = map(source.__getitem__, keys) if read_many is None else read_many(keys)
        return [encode(record, int(key)) for record, key in zip(records, keys, strict=True)]


def _write_whole(
    path: str, target: Target, records: Iterator[Any], options: dict[str, Any]
) -> None:
    """Writes a file under another name; it gets its own when it is on the disk as a whole."""
    # Nobody else's name: a worker may outlive its trainer for a moment, while that starts anew.
    try:
        with replacing(path) as private:
            target.write(private, records, **options)
    except OSError as error:
        if isinstance(error, BushelError):
            raise
        raise FileError(f"{path!r} cannot be written: {error.strerror or error}.") from error


def _counted(records: Any, counts: ShardCounts, number: int, expected: int) -> Iterator[Any]:
    written = 0
    for record in records:
        yield record
        written += 1
        if not written % _REPORT_EVERY:
            counts.set(number, written)
    counts.set(number, written)
    if written != expected:
        raise FileError(f"{expected:,} records were to be written, and {written:,} were read.")
