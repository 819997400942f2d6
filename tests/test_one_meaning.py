"""A name means one thing: no class is defined twice, and few files are called alike."""

import ast
from collections import defaultdict
from pathlib import Path

import bushel

_ROOT = Path(bushel.__file__).parent

# Files that share a name, and why nobody takes the one for the other.
_ALIKE = {
    "base": "what the classes of a folder have in common",
    "damaged": "of one format of files",
    "experimental": "Grain has both",
    "iterator": "of datasets, and of loaders",
    "parquet": "the source, and the stream that Grain has in its place",
    "pool": "workers of this machine, and of a cluster",
    "profile": "what it does, and the command",
    "scan": "of one format of files",
    "source": "of one format of files",
    "stream": "what streams are, and the dataset that is one",
}

# A file that one reads in one sitting.
_MOST_LINES = 500


def _files() -> list[Path]:
    return sorted(path for path in _ROOT.rglob("*.py") if path.name != "__init__.py")


def test_a_class_name_is_used_once() -> None:
    """A leading underscore makes no other name."""
    homes = defaultdict(list)
    for path in _files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(f"{path.relative_to(_ROOT)}:{node.lineno}")
    assert len(homes) > 500
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_files_that_share_a_name_are_listed() -> None:
    homes = defaultdict(list)
    for path in _files():
        homes[path.stem].append(str(path.relative_to(_ROOT)))
    assert {name for name, places in homes.items() if len(places) > 1} == set(_ALIKE)


def test_a_file_is_read_in_one_sitting() -> None:
    lengths = {
        str(path.relative_to(_ROOT)): len(path.read_text().splitlines()) for path in _files()
    }
    assert {name: count for name, count in lengths.items() if count > _MOST_LINES} == {}
