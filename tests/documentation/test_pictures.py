"""The pictures of the documentation are those that their program draws."""

import pytest

from benchmarks.figures import RECORDED, recorded
from tools.pictures import FOLDER, PICTURES


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_program_draws(name: str) -> None:
    drawn = (FOLDER / f"{name}.svg").read_text()
    assert drawn == PICTURES[name](), "python -m tools.pictures draws them again"


def test_there_are_no_others() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PICTURES)


def test_figures_are_those_of_the_table() -> None:
    text = RECORDED.read_text()
    assert text == recorded(), "python -m benchmarks.figures draws it again"
    assert text.count('class="hand"') > 15 and text.count('class="grain"') > 20
