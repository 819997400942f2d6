"""Pipelines are values: they print as written, and travel to other processes."""

import re
from typing import Any

import cloudpickle
import pytest

from tests.contract.events import run_events
from tests.contract.pipelines import PIPELINES, Kit, stream_of

every_pipeline = pytest.mark.parametrize("name", PIPELINES)


@every_pipeline
def test_pickles(name: str) -> None:
    ds = stream_of(name, Kit("columns"))
    expected = run_events(ds)
    for again in (cloudpickle.loads(cloudpickle.dumps(ds)), ds):
        assert run_events(again) == expected
    made = PIPELINES[name](Kit("columns"))
    if hasattr(made, "__getitem__"):
        made[0]  # What evaluation keeps must not be in the way.
        assert len(cloudpickle.loads(cloudpickle.dumps(made))) == len(made)


@every_pipeline
def test_prints(name: str) -> None:
    ds = PIPELINES[name](Kit("rows"))
    text = repr(ds)
    assert "\n" not in text
    assert re.match(r"(Map|Iter)Dataset\(.*\)$", text)
    assert " at 0x" not in text + repr(iter(ds))


def test_prints_as_written() -> None:
    kit = Kit()
    ds = kit.source(9).seed(1).shuffle(seed=2)[1:].map(len).batch(4, drop_remainder=True)
    assert repr(ds) == (
        "MapDataset(source(RowSource) -> seed(1) -> shuffle(seed=2) -> slice(1, 9, 1) -> map(len)"
        " -> batch(4, drop_remainder=True))"
    )
    assert repr(ds.to_iter_dataset().filter(bool)).endswith(
        " -> to_iter_dataset() -> filter(bool))"
    )
    mixed = type(ds).mix([kit.source(3), kit.source(4).repeat(2)], [1, 2])
    assert repr(mixed) == (
        "MapDataset([source(RowSource), source(RowSource) -> repeat(2)] -> mix(2 parts, "
        "proportions=[100, 200]))"
    )


def test_of_very_many_steps_and_parts_some_are_printed() -> None:
    chain = Kit().source(9)
    for _ in range(1000):
        chain = chain.map(len)
    text = repr(chain.to_iter_dataset())
    assert text.startswith("IterDataset(source(RowSource) -> map(len) -> ")
    assert "… 978 more …" in text and text.endswith(" -> map(len) -> to_iter_dataset())")
    assert len(text) < 600
    assert "more …" in repr(iter(chain.to_iter_dataset()))
    mixed = type(chain).mix([Kit().source(9)[number % 3 :] for number in range(1000)])
    assert ", … 992 more] -> mix(1000 parts, proportions=[1, 1, " in repr(mixed)
    assert len(repr(mixed)) < 1000 and len(repr(iter(mixed.to_iter_dataset()))) < 1500


def test_of_mixtures_within_mixtures_the_outer_ones_are_printed() -> None:
    ds: Any = Kit().source(9)
    for _ in range(2000):
        ds = type(ds).mix([ds, ds])
    text = repr(ds)
    assert "([[[[…] -> mix(2 parts, proportions=[1, 1]), […] -> mix(" in text
    assert len(text) < 1000
