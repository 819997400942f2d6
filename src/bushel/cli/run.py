"""`bushel run` and `bushel verify`: write a pipeline to files, and verify what was written."""

import argparse
from typing import Any

from bushel.cli.command import add_command
from bushel.cli.load_pipeline import pipeline_of
from bushel.core.ray_options import RayOptions
from bushel.dataset.base import Dataset
from bushel.errors import PlanError, notes_of
from bushel.sources.written.source import WrittenDataSource
from bushel.write.file_formats import FILE_FORMATS
from bushel.write.write_job import write

_RUN = """\
examples:
  bushel run prepare.py:make --to 'out/train-*.arrayrecord' --shards 64
  bushel run prepare.py:make --to 's3://bucket/out/train-*.parquet' --workers 16
  bushel run prepare.py:make --to '/shared/out/train-*.parquet' --ray-workers 64
  bushel run prepare.py:make --to out/ --format tar --on-error skip

`make` is a dataset, or a function without arguments that makes one. After a kill, the same
command goes on with the shards that are missing.
"""
_VERIFY = """\
examples:
  bushel verify out/
  bushel verify 's3://bucket/out/train-*.parquet'
"""


def add_commands(commands: Any) -> None:
    """Adds both to the commands of `bushel`."""
    command = add_command(commands, "run", _run, "write a pipeline to files", _RUN)
    command.add_argument(
        "pipeline", metavar="FILE.py:NAME", help="the dataset, or a function that makes it"
    )
    command.add_argument(
        "--to", required=True, help="the path of the shards, with a * for their number"
    )
    command.add_argument("--format", choices=sorted(FILE_FORMATS), help="if the ending is none")
    command.add_argument("--shards", type=int, help="how many (of about 128 MiB each)")
    command.add_argument("--shard-records", type=int, help="instead: elements in each shard")
    command.add_argument("--workers", type=int, help="processes (as many as there are cores)")
    command.add_argument(
        "--ray-workers",
        type=int,
        help="instead: so many on a Ray cluster, that of RAY_ADDRESS or of this machine",
    )
    command.add_argument(
        "--on-error", choices=("raise", "skip"), default="raise", help="of elements that fail"
    )
    command.add_argument("--overwrite", action="store_true", help="replace an existing dataset")
    command.add_argument(
        "--json-field",
        action="append",
        default=[],
        metavar="NAME",
        help="a field that differs in type, or is None at times",
    )
    command.add_argument(
        "--no-origins", action="store_true", help="do not keep where records came from"
    )
    command.add_argument(
        "--all-origins",
        action="store_true",
        help="keep that after filters of streams, too, which are called once more for it",
    )
    command = add_command(
        commands, "verify", _verify, "compare all bytes with the manifest", _VERIFY
    )
    command.add_argument("path", metavar="PATH", help="a folder that was written, or its shards")


def _run(options: argparse.Namespace) -> None:
    ds = pipeline_of(options.pipeline)
    if not isinstance(ds, Dataset):
        raise PlanError(
            f"{options.pipeline!r} is a {type(ds).__name__}, and `run` writes a dataset: a "
            "MapDataset or an IterDataset."
        )
    workers = options.workers
    if options.ray_workers is not None:
        if workers is not None:
            raise PlanError("`--workers` are processes here and `--ray-workers` are not: give one.")
        workers = RayOptions(num_workers=options.ray_workers)
    try:
        written = write(
            ds,
            options.to,
            format=options.format,
            shards=options.shards,
            shard_records=options.shard_records,
            workers=workers,
            on_error=options.on_error,
            overwrite=options.overwrite,
            json_fields=options.json_field,
            origins="all" if options.all_origins else not options.no_origins,
        )
    except Exception as error:
        # The notes tell which step it was, which shard and which record.
        told = " ".join(note.removeprefix("bushel: ") for note in notes_of(error))
        kind = "" if isinstance(error, PlanError) else f"{type(error).__name__}: "
        raise PlanError(f"{kind}{error} ({told})" if told else f"{kind}{error}") from error
    print(written)


def _verify(options: argparse.Namespace) -> None:
    source = WrittenDataSource(options.path, verify=True)
    print(f"{source.manifest}: all bytes are as they were written")
