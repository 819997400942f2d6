"""The command `bushel`: parses the command line; runs `head`, `sample`, `count`, `index` itself."""

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import bushel
from bushel.cli import completion, live, profile, recordings, run, where_when
from bushel.cli.command import add_command
from bushel.cli.convert import LOOKED_AT, convert
from bushel.cli.inspect import describe, table
from bushel.cli.show import as_json, brief, leaves_of
from bushel.dataset import MapDataset
from bushel.errors import BushelError, PlanError, notes_of
from bushel.sources.formats import BY_NAME, format_of
from bushel.write.writers import TARGETS


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line says; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files need not be text, and terminals do not know every letter.
            stream.reconfigure(errors="backslashreplace")
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough: `bushel head data.parquet | less`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (BushelError, OSError, ValueError) as error:
        # Without its notes, which name steps of a pipeline that the user has not written.
        print(f"bushel: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bushel: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bushel", description="Looks at files of records, indexes and converts them."
    )
    parser.add_argument("--version", action="version", version=f"bushel {bushel.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    inspect = _command(commands, "inspect", _inspect, "format, records, sizes, schema, one record")
    inspect.add_argument("--json", action="store_true", help="for programs")
    _command(commands, "index", _index, "look up once where records begin, and keep it")
    for name, action, words in (
        ("head", _head, "the first records"),
        ("sample", _sample, "records at random"),
    ):
        command = _command(commands, name, action, words)
        command.add_argument("-n", type=int, default=5, help="how many (5)")
        command.add_argument("--json", action="store_true", help="one line of JSON for each")
        if name == "sample":
            command.add_argument("--seed", type=int, default=None, help="which ones (any)")
    other = _command(commands, "convert", _convert, "write the records in another format")
    other.add_argument("to", metavar="TO", help="the file to write; its ending gives the format")
    other.add_argument("--to-format", choices=sorted(TARGETS), help="the format, if not the ending")
    other.add_argument("--shards", type=int, help="number of files, NAME-00000-of-00008.ending")
    other.add_argument("--workers", type=int, help="processes (as many as there are cores)")
    other.add_argument(
        "--look-at",
        type=int,
        default=LOOKED_AT,
        help=f"number of records that decide the columns of a table ({LOOKED_AT:,})",
    )
    other.add_argument("--overwrite", action="store_true", help="replace existing files")
    run.add_commands(commands)
    where_when.add_commands(commands)
    recordings.add_commands(commands)
    live.add_commands(commands)
    profile.add_commands(commands)
    completion.add_commands(commands)
    return parser


_EXAMPLES = {
    "inspect": ["bushel inspect data/", "bushel inspect 's3://bucket/train-*.parquet' --json"],
    "index": ["bushel index 'data/*.tar'"],
    "head": ["bushel head corpus.jsonl", "bushel head -n 1 --json train.arrayrecord"],
    "sample": ["bushel sample images/ --format images -n 3 --seed 7"],
    "convert": [
        "bushel convert corpus.jsonl corpus.parquet",
        "bushel convert photos/ photos.tar --shards 64      (as WebDataset: jpg, cls)",
        'bushel convert table.parquet table.csv --option columns=\'["x", "y"]\'',
    ],
}


def _command(commands: Any, name: str, action: Any, words: str) -> argparse.ArgumentParser:
    examples = "examples:\n  " + "\n  ".join(_EXAMPLES[name])
    command = add_command(commands, name, action, words, examples)
    command.add_argument("paths", nargs="+" if name != "convert" else 1, metavar="PATH")
    command.add_argument("--format", choices=sorted(BY_NAME), help="if the files do not tell")
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source, as columns='[\"x\"]' (values are JSON, or else text)",
    )
    return command


def _paths(options: argparse.Namespace) -> Any:
    return options.paths[0] if len(options.paths) == 1 else options.paths


def _source_options(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in options.option:
        name, equals, value = text.partition("=")
        if not equals:
            raise PlanError(f"--option takes NAME=VALUE, and got {text!r}.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _open(options: argparse.Namespace) -> tuple[str, Any]:
    paths = _paths(options)
    known = format_of(paths, options.format)
    try:
        return known.name, known.open(paths, **_source_options(options))
    except TypeError as error:
        if options.option:
            told = "; ".join([str(error), *notes_of(error)]).rstrip(".").replace("bushel: ", "")
            raise PlanError(f"the format {known.name} takes other options: {told}.") from None
        raise


def _inspect(options: argparse.Namespace) -> None:
    found = describe(*_open(options))
    print(json.dumps(found, indent=2) if options.json else table(found))


def _index(options: argparse.Namespace) -> None:
    name, source = _open(options)
    print(f"{name}: {len(source):,} records, ready to be read")


def _head(options: argparse.Namespace) -> None:
    _, source = _open(options)
    _print(source, range(min(_count(options), len(source))), options.json)


def _sample(options: argparse.Namespace) -> None:
    _, source = _open(options)
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")
    keys: list[int] = []
    if len(source):
        count = min(_count(options), len(source))
        keys = list(MapDataset.range(len(source)).shuffle(seed=seed)[:count])
    _print(source, keys, options.json)


def _count(options: argparse.Namespace) -> int:
    if options.n < 0:
        raise PlanError(f"-n is a number of records, and cannot be {options.n}.")
    return int(options.n)


def _print(source: Any, keys: Sequence[int], as_lines: bool) -> None:
    for key in keys:
        record = source[key]
        if as_lines:
            print(json.dumps({"record": key, "value": as_json(record)}))
            continue
        leaves = leaves_of(record)
        if len(leaves) == 1 and not leaves[0][0]:
            print(f"{key}: {brief(leaves[0][1])}")
            continue
        print(f"{key}:")
        for name, leaf in leaves:
            print(f"  {name}: {brief(leaf)}")


def _convert(options: argparse.Namespace) -> None:
    name, _ = _open(options)
    convert(
        _paths(options),
        options.to,
        format=name,
        options=_source_options(options),
        to_format=options.to_format,
        shards=options.shards,
        workers=options.workers,
        overwrite=options.overwrite,
        look_at=options.look_at,
    )
