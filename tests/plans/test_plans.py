"""Plans as texts, and that what a plan says is what runs."""

import re
from functools import partial
from pathlib import Path

import pytest

from bushel.core.places import ToStreamNode
from bushel.deliver.open import plan
from bushel.run.build import lowered
from bushel.run.cut import WORKERS, Stretch
from bushel.run.plan import Lowered, Plan
from bushel.workers.engine import Engine
from bushel.workers.fragment import Fragment
from bushel.workers.lowering import lowered_to_workers
from tests.plans.pipelines import PIPELINES, node_of

TEXTS = Path(__file__).with_name("plans.txt")


def _plan(name: str) -> Plan:
    return plan(node_of(name))


def _text_of_all() -> str:
    return "\n\n".join(f"# {name}\n{_plan(name)}" for name in PIPELINES) + "\n"


def test_the_plans_are_these() -> None:
    """To see what a change does to them, write the text anew and look at the difference."""
    assert _text_of_all() == TEXTS.read_text()


def test_the_words_of_a_cut() -> None:
    assert str(_plan("filter and batch").cut).split("\n") == [
        "workers: range(0, 100, 1) -> to_iter_dataset() -> map(double) -> filter(is_odd)",
        "here: batch(8)",
        "  why: `batch(8)` after `filter(is_odd)`: how many elements came before is known only in "
        "order",
        "workers: map(double)",
        "  why: `map(double)`: needs no more than each element by itself",
    ]


def _at_workers(last: Stretch) -> list[Stretch]:
    """What workers do, or do if a guess is wrong."""
    found = []
    for stretch in last.walk():
        if stretch.where == WORKERS:
            found.append(stretch)
        if stretch.otherwise is not None:
            found += _at_workers(stretch.otherwise)
    return found


def _opened(name: str, fragments: list[Fragment], monkeypatch: pytest.MonkeyPatch) -> Lowered:
    register = Engine.register

    def noted(engine: Engine, fragment: Fragment) -> int:
        fragments.append(fragment)
        return register(engine, fragment)

    monkeypatch.setattr(Engine, "register", noted)
    made = _plan(name)
    return lowered(made.dealt, made.cut, partial(lowered_to_workers, starters={}, engines=[]))


@pytest.mark.parametrize("name", PIPELINES)
def test_what_it_says_is_what_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fragments: list[Fragment] = []
    opened = _opened(name, fragments, monkeypatch)
    try:
        stretches = _at_workers(_plan(name).cut)
        by_position = [isinstance(stretch.steps[0], ToStreamNode) for stretch in stretches]
        steps = [
            [step.describe() for step in stretch.steps[is_dataset:]]
            for stretch, is_dataset in zip(stretches, by_position, strict=True)
        ]
        told = [[step.describe() for step in fragment.steps] for fragment in fragments]
        assert sorted(told) == sorted(steps)
        assert sum(by_position) == sum(fragment.root is not None for fragment in fragments)
        running = [one.stream for one in opened.opened if one.where == WORKERS]
        certain = [stretch for stretch in _plan(name).cut.walk() if stretch.where == WORKERS]
        assert len(running) == len(certain)
        assert all(stream in ("RemoteStream", "RemoteSteps") for stream in running)
    finally:
        opened.stream.close()


def test_a_lowered_plan_names_its_streams() -> None:
    made = _plan("steps with a memory")
    opened = lowered(made.dealt, made.cut)
    opened.stream.close()
    assert [re.sub(r"<.*>", "", line) for line in str(opened).split("\n")] == [
        "here: PositionalStream of to_iter_dataset()",
        "here: WindowsStream of windows(4)",
        "here: RepeatStream of repeat(2)",
        "here: SkipStream of skip(10)",
        "here: LimitStream of limit(20)",
        "here: CacheStream of cache()",
    ]
