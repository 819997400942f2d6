"""Writes the tables of files into docs/design.md: each file with the first line of its docstring.

python -m tools.file_tables

A test holds the page to what this writes.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "bushel"
PAGE = ROOT / "docs" / "design.md"
# The tables are what comes after this line, up to the end of the page.
MARK = "<!-- written by python -m tools.file_tables -->\n"


def first_line(file: Path) -> str:
    """What a file is, by the first line of its docstring, which is a sentence."""
    docstring = ast.get_docstring(ast.parse(file.read_text()))
    if docstring is None:
        raise ValueError(f"{file} has no docstring.")
    line, _, rest = docstring.partition("\n")
    if not line.endswith(".") or (rest and not rest.startswith("\n")):
        raise ValueError(f"the docstring of {file} must begin with one line that is a sentence.")
    return line


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
            yield from ("", "| file | what it is |", "| --- | --- |")
        for file in files:
            yield f"| `{file.relative_to(PACKAGE).as_posix()}` | {first_line(file)} |"


def with_tables(text: str) -> str:
    """The text of the page, with the tables of today."""
    before, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE} has no line {MARK!r}.")
    return before + mark + tables()


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
