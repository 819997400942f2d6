"""Explanations as HTML: escaped, without a script, and read in a real browser."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bushel import MapDataset
from bushel.watch.html import page
from tests.browser import look_at, needs_browser, picture_of
from tests.thorough import slow
from tests.watch.pipelines import PIPELINES

_ATTACK = "<script>alert(1)</script>"


def _named(name: str) -> Any:
    def function(element: Any) -> Any:
        return element

    function.__name__ = name
    return function


_TAGS = set("html head meta title style body div table tr th td p b svg rect text".split())
_ATTRIBUTES = set("class style colspan role lang charset name content http-equiv".split())
_ATTRIBUTES |= set("viewbox width height aria-label x y rx fill font-size".split())


class _Reader(HTMLParser):
    """Fails where there is more than the page needs, or an element is not closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in _TAGS
        assert {name for name, _ in attrs} <= _ATTRIBUTES
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", PIPELINES)
def test_it_has_no_script_and_no_address(name: str) -> None:
    made = page(name, PIPELINES[name]()._repr_html_())
    assert "http:" not in made
    assert "https:" not in made
    reader = _Reader()
    reader.feed(made)
    assert reader.open == []


@pytest.mark.parametrize(
    "name",
    [_ATTACK, '"><img src=x onerror=alert(1)>', "a\nb", "&amp;", "half \ud800", "\x00\x1b[31m"],
)
def test_texts_are_texts(name: str) -> None:
    ds = MapDataset.range(9).map(_named(name)).batch(2)
    made = ds._repr_html_()
    assert "<script" not in made
    assert "<img" not in made
    assert made.encode().decode() == made
    assert all(one.isprintable() or one == "\n" for one in str(ds.explain()))


@needs_browser
@pytest.mark.parametrize("dark", [pytest.param(False, marks=slow), True])
def test_in_a_browser(dark: bool, tmp_path: Path) -> None:
    """The document, its width, its colours and a picture of it."""
    ds = PIPELINES["a filter, then a batch, then a map, by workers"]().map(_named(_ATTACK))
    explanation = ds.explain()
    file = tmp_path / "page.html"
    file.write_text(page("What is my pipeline?", explanation._repr_html_()))
    seen = look_at(file, 700, dark)
    assert (seen.count("script"), seen.count("table"), seen.fetched) == (0, 1, [])
    assert seen.count("tr") == 1 + len(explanation.steps)
    placed = [step for step in explanation.steps if step.place]
    assert seen.count("rect") == len(placed) + len({step.place for step in placed})
    assert _ATTACK in seen.text
    assert seen.width <= 700
    light, ink = (_brightness(colour) for colour in (seen.background, seen.color))
    assert (light < ink) is dark
    picture = picture_of(file, 700, dark)
    assert picture.shape[1] == 700
    assert bool(picture.mean() < 128) is dark
    # There is something on it, other than one colour.
    assert picture.std() > 10


def _brightness(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))
