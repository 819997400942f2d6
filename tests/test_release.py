"""What a release is made of agrees with itself."""

import re
from pathlib import Path

import pytest
import yaml

import bushel
from tools import release_notes

ROOT = Path(__file__).parent.parent


def test_there_is_one_version() -> None:
    assert release_notes.version() == bushel.__version__
    assert ".".join(map(str, bushel.__version_info__)) == bushel.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == bushel.__version__


def test_notes_are_a_section_of_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    # What comes next has a heading, under which there may be nothing yet.
    assert versions[:2] == ["Unreleased", bushel.__version__]
    for version in versions[1:]:
        notes = release_notes.notes(text, version)
        assert len(notes) > 10 and notes in text and "\n## [" not in notes


def test_a_version_without_notes() -> None:
    with pytest.raises(SystemExit, match=r"nothing of version 9\.9; it has .*0\.2\.0"):
        release_notes.notes("## [0.2.0]\n\n- Faster.\n", "9.9")


def test_the_public_ci_runs_what_is_asked_of_a_change() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    job = workflow["jobs"]["test"]
    commands = " ".join(step.get("run", "") for step in job["steps"])
    for command in re.findall(r"make .*(check|test)\b", (ROOT / ".ci/run").read_text()):
        assert f"make {command}" in commands
    pythons = re.search(r"^PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pythons is not None and job["strategy"]["matrix"]["python"] == pythons[1].split()
