"""Which files are meant."""

import os
from pathlib import Path
from typing import Any

import pytest

from bushel.errors import MissingFileError, PlanError
from bushel.files.paths import expand, natural


def names(paths: Any, *endings: str) -> list[str]:
    return [os.path.basename(path) for path in expand(paths, endings)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ["b-10.txt", "b-9.txt", "a.TXT", "notes.md", ".hidden.txt", "_SUCCESS", "in/c.txt"]:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).touch()
    return folder


def test_a_folder_stands_for_its_files(folder: Path) -> None:
    assert names(folder, ".txt") == ["a.TXT", "b-9.txt", "b-10.txt"]
    assert names(str(folder)) == ["a.TXT", "b-9.txt", "b-10.txt", "notes.md"]


def test_a_glob_is_sorted_with_numbers_as_numbers(folder: Path) -> None:
    assert names(folder / "b-*.txt") == ["b-9.txt", "b-10.txt"]
    assert names(folder / "**" / "*.txt") == ["b-9.txt", "b-10.txt", "c.txt"]


def test_a_sequence_keeps_its_order(folder: Path) -> None:
    assert names([folder / "notes.md", folder / "b-*.txt", folder / "a.TXT"]) == [
        "notes.md",
        "b-9.txt",
        "b-10.txt",
        "a.TXT",
    ]


def test_a_name_that_looks_like_a_glob_and_is_there_is_a_name(folder: Path) -> None:
    (folder / "b-[19].txt").touch()
    assert names(folder / "b-[19].txt") == ["b-[19].txt"]


def test_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert names("~/notes.md") == ["notes.md"]


def test_what_is_missing_is_said_with_what_may_be_meant(folder: Path) -> None:
    with pytest.raises(MissingFileError, match=r"there is no file .*There is 'notes\.md'"):
        expand(folder / "note.md")
    with pytest.raises(MissingFileError, match=r"Nor is there a folder '.*elsewhere'"):
        expand(folder / "elsewhere" / "a.txt")
    with pytest.raises(MissingFileError, match=r"no file matches '.*\*\.tar'"):
        expand(folder / "*.tar")
    with pytest.raises(MissingFileError, match=r"no file that ends in \.tar; it has 4 others"):
        expand(folder, [".tar"])
    (folder / "empty").mkdir()
    with pytest.raises(MissingFileError, match=r"has no file; it is empty"):
        expand(folder / "empty")
    (folder / "empty" / "inner").mkdir()
    with pytest.raises(MissingFileError, match=r"has no file; it has 1 folder\. .*empty/\*\*/\*'"):
        expand(folder / "empty")


@pytest.mark.parametrize("paths", [3, None, b"bytes", [3], ["a", None]])
def test_what_is_no_path(paths: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").touch()
    with pytest.raises(PlanError, match=r"a path"):
        expand(paths)


def test_an_empty_sequence() -> None:
    with pytest.raises(PlanError, match="at least one file"):
        expand([])


def test_numbers_and_letters_compare() -> None:
    assert sorted(["a10", "a", "10", "a9b", "9"], key=natural) == ["9", "10", "a", "a9b", "a10"]
