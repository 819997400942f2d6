"""docs/design.md says of every file what it is, as the file itself does."""

from pathlib import Path

import pytest

from tools import file_tables


def test_the_design_has_every_file() -> None:
    text = file_tables.PAGE.read_text()
    assert file_tables.with_tables(text) == text, "run `python -m tools.file_tables`"


def test_every_folder_of_the_package_is_there() -> None:
    files = [path for path in file_tables.PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    assert len(files) > 400
    made = file_tables.tables()
    for file in files:
        assert f"| `{file.relative_to(file_tables.PACKAGE).as_posix()}` | " in made


@pytest.mark.parametrize(
    "docstring",
    ["", '"""No sentence"""', '"""A sentence that\ngoes on."""', '"""A list:\n\n- x"""'],
)
def test_a_first_line_is_a_sentence(docstring: str, tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(f"{docstring}\n")
    with pytest.raises(ValueError, match="docstring"):
        file_tables.first_line(file)


def test_names_that_others_may_use(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(
        '"""`Told`: a class."""\n\n'
        "class Told: ...\nclass _Own: ...\nclass Other: ...\n"
        "def twice(): ...\ndef twice(): ...\n"
    )
    assert file_tables.names(file) == "`Other`, `twice`"


def test_many_names_are_cut_short(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    functions = "".join(f"def a_function_{number}(): ...\n" for number in range(10, 99))
    file.write_text(f'"""Many functions."""\n\n{functions}')
    listed = file_tables.names(file)
    assert listed.startswith("`a_function_10`, `a_function_11`, ")
    assert listed.endswith("`, ...")
    assert len(listed) < 120


def test_a_page_without_a_place_for_them() -> None:
    with pytest.raises(ValueError, match="has no line"):
        file_tables.with_tables("# Design\n")
