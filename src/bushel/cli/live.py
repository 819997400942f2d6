"""`bushel top` and `serve`: which program a PID or path means, and the error of a wrong one."""

import argparse
import json
import os
import sys
import time
from typing import Any

from bushel.cli.command import add_command
from bushel.cli.serve import serve
from bushel.watch.live_processes import LiveProcess, found_programs, none_found
from bushel.watch.plain_text import table

_EVERY_SECONDS = 1.0
_CLEAR = "\x1b[H\x1b[J"
_HEAD = ("PID", "iterators", "elements", "command")


def add_commands(commands: Any) -> None:
    """Adds both to the commands of `bushel`."""
    asked = _command(commands, "top", _top, "the figures of a running training, in this terminal")
    asked.add_argument("--once", action="store_true", help="print it once")
    asked.add_argument("--json", action="store_true", help="for programs; once, too")
    asked = _command(commands, "serve", _serve, "the same in a browser; /metrics is for Prometheus")
    asked.add_argument(
        "--port", type=_port, default=0, help="on 127.0.0.1 (a free port, which is printed)"
    )


def _command(commands: Any, name: str, run: Any, words: str) -> argparse.ArgumentParser:
    command = add_command(commands, name, run, words)
    command.add_argument(
        "program",
        type=_program,
        nargs="?",
        metavar="PID|FILE",
        help="its process, or the file that it puts its figures in (all processes of yours)",
    )
    return command


def _program(text: str) -> int | str:
    # A file whose name is a number is written as ./7.
    if any(letter in text for letter in "/.") or os.path.isfile(text):
        return text
    return _within(text, "a PID", 1, 1 << 31)


def _port(text: str) -> int:
    return _within(text, "a port", 0, 65535)


def _within(text: str, what: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}: {least} to {most}")
    return int(text)


def _found(program: int | str | None) -> list[LiveProcess]:
    found = found_programs(program)
    if not found:
        raise none_found()
    return found


def _top(options: argparse.Namespace) -> None:
    found = _found(options.program)
    if options.json:
        print(json.dumps([one.to_dict() for one in found], indent=2))
        return
    if options.once or not sys.stdout.isatty():
        print(_screen(found))
        return
    while True:
        print(f"{_CLEAR}{_screen(found)}", flush=True)
        time.sleep(_EVERY_SECONDS)
        # The last screen stays when the program has ended, with why there is no other.
        found = _found(options.program)


def _screen(found: list[LiveProcess]) -> str:
    if len(found) == 1:
        return str(found[0])
    listed = table(_HEAD, [one.row() for one in found], right=(0, 1, 2))
    return f"{listed}\n\n`bushel top PID` shows one of them."


def _serve(options: argparse.Namespace) -> None:
    if options.program is not None:
        _found(options.program)
    serve(options.program, options.port)
