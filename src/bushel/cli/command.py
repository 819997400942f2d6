"""The common form of the commands of `bushel`: name, help, examples."""

import argparse
from typing import Any


def add_command(
    commands: Any, name: str, run: Any, words: str, examples: str | None = None
) -> argparse.ArgumentParser:
    """Adds a command that calls `run`; examples stand below its options as they are written."""
    how: dict[str, Any] = {}
    if examples is not None:
        how = {"epilog": examples, "formatter_class": argparse.RawDescriptionHelpFormatter}
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=words, description=words, **how
    )
    command.set_defaults(run=run)
    return command
