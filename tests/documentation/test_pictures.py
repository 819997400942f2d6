"""The pictures of the documentation are those that their program draws."""

import pytest

from tools.pictures import FOLDER, PICTURES


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_program_draws(name: str) -> None:
    drawn = (FOLDER / f"{name}.svg").read_text()
    assert drawn == PICTURES[name](), "python -m tools.pictures draws them again"


def test_there_are_no_others() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PICTURES)
