"""Writes the tables of files into docs/design.md: the first line of each file, and its names.

python -m tools.file_tables

A test holds the page to what this writes.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "bushel"
PAGE = ROOT / "docs" / "design.md"
# The tables are what comes after this line, up to the end of the page.
MARK = "<!-- written by python -m tools.file_tables -->\n"
# The names of a file are listed up to so many characters: they are to be looked up, not read.
_MOST_CHARACTERS = 90


def first_line(file: Path) -> str:
    """What a file is, by the first line of its docstring, which is a sentence."""
    docstring = ast.get_docstring(ast.parse(file.read_text()))
    if docstring is None:
        raise ValueError(f"{file} has no docstring.")
    line, _, rest = docstring.partition("\n")
    if not line.endswith(".") or (rest and not rest.startswith("\n")):
        raise ValueError(f"the docstring of {file} must begin with one line that is a sentence.")
    return line


def names(file: Path) -> str:
    """The classes and functions that a file defines for others, without those in its first line."""
    line = first_line(file)
    found: list[str] = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            known = node.name.startswith("_") or re.search(rf"`{node.name}`", line)
            if not known and node.name not in found:
                found.append(node.name)
    shown: list[str] = []
    for name in found:
        if shown and len(", ".join([*shown, name])) > _MOST_CHARACTERS:
            return ", ".join(f"`{one}`" for one in shown) + ", ..."
        shown.append(name)
    return ", ".join(f"`{one}`" for one in shown)


def tables() -> str:
    """The tables of all folders, in the order of the alphabet."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    for package in sorted(PACKAGE.rglob("__init__.py")):
        folder = package.parent
        files = [file for file in sorted(folder.glob("*.py")) if file != package]
        yield from ("", f"### `{folder.relative_to(PACKAGE.parent).as_posix()}/`")
        yield from ("", first_line(package))
        if files:
            yield from ("", "| file | what it is | names in it |", "| --- | --- | --- |")
        for file in files:
            path = file.relative_to(PACKAGE).as_posix()
            yield f"| `{path}` | {first_line(file)} | {names(file)} |"


def with_tables(text: str) -> str:
    """The text of the page, with the tables of today."""
    before, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE} has no line {MARK!r}.")
    return before + mark + tables()


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
