"""Makes what pages of the site are made of: mkdocs calls this while it builds.

Notebooks become pages, and the page about the command line gets what `--help` says.
"""

import contextlib
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

# mkdocs runs this file by itself, and not as a part of a package.
_ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(_ROOT), str(_ROOT / "src")]

_HELP_MARK = "<!-- the help of every command -->"


def on_files(files: Any, *, config: Any) -> Any:
    """Adds a page for each notebook; the notebook itself is copied, too, as any file is."""
    from tools import notebooks

    for path in sorted(notebooks.FOLDER.glob("*.ipynb")):
        text = notebooks.markdown(notebooks.read(path), path.stem)
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the help of every command where a page asks for it."""
    return markdown.replace(_HELP_MARK, _all_help()) if _HELP_MARK in markdown else markdown


def _all_help() -> str:
    commands = re.findall(r"^    ([a-z-]+)(?:  |$)", _help(), re.MULTILINE)
    fence = "``` { .text .help .no-copy }"
    return "\n\n".join(f"### `bushel {name}`\n\n{fence}\n{_help(name)}```" for name in commands)


def _help(*command: str) -> str:
    """What `--help` says, of the width of a page."""
    from bushel.cli.main import main

    told, os.environ["COLUMNS"] = io.StringIO(), "96"
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return told.getvalue()
