"""Prints what the changelog says of a version: the notes of its release.

python -m tools.release_notes          of the version that the sources have
python -m tools.release_notes 0.1.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def version() -> str:
    """The version of the sources, read without importing them."""
    text = (ROOT / "src" / "bushel" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        sys.exit("release_notes: src/bushel/__init__.py has no line `__version__ = ...`.")
    return found[1]


def notes(changelog: str, wanted: str) -> str:
    """The section of a version, without its heading.

    >>> notes("# Changelog\\n\\n## [0.2.0] - 2026-12-01\\n\\n- Faster.\\n\\n## [0.1.0]\\n", "0.2.0")
    '- Faster.'
    """
    sections = re.split(r"^## \[(.+?)\].*$", changelog, flags=re.MULTILINE)
    by_version = dict(zip(sections[1::2], sections[2::2], strict=True))
    if not by_version.get(wanted, "").strip():
        known = ", ".join(by_version)
        sys.exit(
            f"release_notes: CHANGELOG.md says nothing of version {wanted}; it has {known}. "
            "Rename its section [Unreleased]."
        )
    return by_version[wanted].strip()


if __name__ == "__main__":
    print(notes((ROOT / "CHANGELOG.md").read_text(), sys.argv[1] if sys.argv[1:] else version()))
