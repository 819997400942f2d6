"""Explanations: as texts, against what is there, and of whatever can be built."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import DatasetIterator, IterDataset, MapDataset, MultiprocessingOptions
from bushel.dataset.stream import stream_node
from bushel.experimental import InterleaveIterDataset, ZipIterDataset
from bushel.sources import JsonLinesDataSource
from bushel.watch.element_counts import Counts
from bushel.watch.explanation import ExplainedStep
from tests.contract.parts import double, is_not_third
from tests.contract.pipelines import PIPELINES as CONTRACT
from tests.contract.pipelines import Kit, elements_of, stream_of
from tests.watch.parts import Unread, Untouchable
from tests.watch.pipelines import PIPELINES, Own, records, stream

TEXTS = Path(__file__).with_name("explanations.txt")
_WORKERS = MultiprocessingOptions(num_workers=2)


def test_the_explanations_are_these() -> None:
    """To see what a change does to them, write the text anew and look at the difference."""
    made = "\n\n".join(f"# {name}\n{make().explain()}" for name, make in PIPELINES.items()) + "\n"
    assert made == TEXTS.read_text()


@pytest.mark.parametrize("name", CONTRACT)
def test_counts_are_those_of_the_elements(name: str) -> None:
    ds = stream_of(name, Kit())
    count = Counts().of(stream_node(ds))
    made = sum(1 for _ in elements_of(ds)) if count.number is not None else 0
    if count.number is not None:
        assert made <= count.number if count.at_most or "fail" in name else made == count.number


@pytest.mark.parametrize("name", CONTRACT)
def test_every_pipeline_is_explained(name: str) -> None:
    ds = CONTRACT[name](Kit())
    own = ds.to_iter_dataset() if isinstance(ds, MapDataset) else ds
    for each in (ds, own.mp_prefetch(_WORKERS)):
        explanation = bushel.explain(each)
        assert explanation.problem is None
        _check(explanation)
    # Each name that `repr` has is that of a step.
    shown = {step.name for step in _all(explanation.steps)}
    assert explanation.steps[-1].name == "mp_prefetch(num_workers=2)"
    assert len(shown) > 1


@pytest.mark.parametrize("size", [0, 7, 40, 41])
@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_counts_in_lanes(size: int, remainder: str) -> None:
    dealt = records(size).lanes(4, remainder=remainder)
    for ds in (dealt, dealt.map(double), dealt.batch(8), dealt.map(double).batch(4).enumerate()):
        count = Counts().of(stream_node(ds))
        made = sum(1 for _ in elements_of(ds))
        if count.at_most:
            assert made <= (count.number or 0)
        else:
            assert count.number in (made, None)
    assert Counts().of(stream_node(dealt.batch(8))).number is not None
    # They are steps of each lane.
    for ds in (dealt.take(1), dealt.filter(is_not_third), dealt.windows(2).batch(4)):
        assert Counts().of(stream_node(ds)).number is None


def _check(explanation: Any) -> None:
    steps = list(_all(explanation.steps))
    assert sorted(step.number for step in steps) == list(range(len(steps)))
    assert json.loads(json.dumps(explanation.to_dict())) == explanation.to_dict()
    assert pickle.loads(pickle.dumps(explanation)) == explanation
    assert all(line == line.rstrip() for line in str(explanation).split("\n"))
    assert "<script" not in explanation._repr_html_()


def _all(steps: Any) -> Any:
    for step in steps:
        for part in step.parts:
            yield from _all(part.steps)
        yield step


def test_nothing_is_read() -> None:
    source = Untouchable()
    ds = MapDataset.source(source).map(double).shuffle(seed=1).batch(4)
    many = [ds, ds.to_iter_dataset().filter(is_not_third).batch(2).mp_prefetch(_WORKERS)]
    many += [ds.lanes(2).filter(is_not_third).batch(4), ds.filter(is_not_third).compact()]
    source.armed = True
    for each in many:
        assert each.explain().steps[-1].count == "?"
        assert each.explain().problem is None
        assert "Untouchable" in repr(each) + each._repr_html_()
    known = MapDataset.source(Unread()).map(double).batch(4)
    assert [step.elements for step in known.explain().steps] == [1000, 1000, 250]
    assert known.filter(is_not_third).compact().explain().steps[-1].count == "?"


def test_a_pass_over_the_data_is_not_made_but_used() -> None:
    ds = records(30).filter(is_not_third).compact().batch(4)
    assert [step.count for step in ds.explain().steps] == ["30", "<= 30", "?", "?"]
    assert len(ds) == 5
    assert [step.count for step in ds.explain().steps] == ["30", "<= 30", "20", "5"]


def test_datasets_of_datasets_are_not_made() -> None:
    made = records().map(_refused)
    ds = InterleaveIterDataset(made, cycle_length=2)
    assert [step.parts for step in ds.explain().steps] == [()]


def _refused(_element: Any) -> Any:
    raise AssertionError("called")


def test_nothing_is_started() -> None:
    ds = stream().map(double).mp_prefetch(MultiprocessingOptions(num_workers=3))
    before = _tasks()
    assert "3 workers" in str(ds.explain())
    assert _tasks() == before


def _tasks() -> tuple[list[str], list[str]]:
    """The threads and the children of this process."""
    threads = sorted(os.listdir("/proc/self/task"))
    return threads, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_long_chains_are_folded() -> None:
    ds = MapDataset.range(100)
    for _ in range(3000):
        ds = ds.map(abs)
    explanation = ds.explain()
    assert len(explanation.steps) == 3001
    assert str(explanation).split("\n")[2:] == [
        "      … and 2,999 more like it",
        "   0  range(0, 100, 1)       100  here, <= 16 threads  Source",
    ]
    for number in range(300):
        ds = ds.shuffle(seed=number)
    text = str(ds.explain())
    assert "more lines: to_dict() has all" in text
    assert text.count("\n") < 250
    assert len(ds.explain()._repr_html_()) < 100_000


def test_parts_that_are_alike_are_one() -> None:
    some = [stream(10 + n).map(double) for n in range(50)]
    others = [stream().filter(is_not_third) for _ in range(50)]
    mixed = [part for pair in zip(some, others, strict=True) for part in pair]
    (step,) = IterDataset.mix(mixed).explain().steps
    assert [(part.name, part.alike, part.elements) for part in step.parts] == [
        ("part 0", 50, sum(range(10, 60))),
        ("part 1", 50, None),
    ]
    different = [stream().map(function) for function in _functions(30)]
    (step,) = IterDataset.concatenate(different).explain().steps
    assert len(step.parts) == 9
    assert step.parts[-1].title == "and 22 parts of other kinds:"


def _functions(count: int) -> list[Any]:
    made = []
    for number in range(count):

        def function(element: Any) -> Any:
            return element

        function.__name__ = f"function_{number}"
        made.append(function)
    return made


def test_joins_of_joins_end_somewhere() -> None:
    ds: Any = stream()
    for _ in range(40):
        ds = ZipIterDataset([ds, stream()])
    assert "not shown: too deep" in str(ds.explain())
    for _ in range(2000):
        ds = ZipIterDataset([ds])
    explanation = ds.explain()
    assert len(explanation.steps) > 1000


def test_joins_that_are_too_deep_to_run() -> None:
    ds: Any = stream()
    for _ in range(1200):
        ds = ZipIterDataset([ds, stream()])
    assert "recursion" in (ds.explain().problem or "")
    assert "too deep" in str(ds.explain())
    same: Any = stream()
    for _ in range(10):
        same = ZipIterDataset([same, same])
    assert str(same.explain()).count("2 parts like part 0") == 10


class _Nameless:
    """A function that fails when it is asked for anything."""

    def __call__(self, element: Any) -> Any:
        raise AssertionError("called")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"asked for {name}")


def test_functions_that_do_not_tell_their_names() -> None:
    ds = stream().map(_Nameless()).filter(_Nameless()).batch(2).map(_Nameless())
    explained = IterDataset.mix([ds, ds.map(double)]).mp_prefetch(_WORKERS).explain()
    assert explained.problem is None
    assert "MapNode" in {step.name for step in _all(explained.steps)}


def test_one_part_in_two_places() -> None:
    same = stream().map(double)
    (step,) = ZipIterDataset([same.mp_prefetch(_WORKERS), same]).explain().steps
    assert [[one.place for one in part.steps] for part in step.parts] == [
        ["workers", "workers", "workers", None],
        ["here", "here", "here"],
    ]


class Odd(IterDataset[int]):
    """A stream of a user's own that never called `super().__init__`."""

    def __init__(self) -> None:
        pass

    def __iter__(self) -> Any:
        raise AssertionError("iterated")


class Rows(MapDataset[int]):
    """A random-access dataset of a user's own, which has no length."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("read")


def test_datasets_of_the_users_own() -> None:
    assert [step.runs for step in Odd().explain().steps] == ["here"]
    assert [step.count for step in Rows().map(double).explain().steps] == ["?", "?"]
    assert repr(Odd()) == "Odd()"
    assert repr(Own(MapDataset.range(3).to_iter_dataset())) == (
        "Own(IterDataset(range(0, 3, 1) -> to_iter_dataset()))"
    )
    nested = Own(Own(stream().map(double).mp_prefetch(_WORKERS)))
    (step,) = nested.explain().steps
    places = [one.place for one in _all((step,))]
    assert places == ["workers", "workers", "workers", None, "here", "here"]


class Twice(DatasetIterator[Any]):
    """An iterator of a user's own."""

    def __next__(self) -> Any:
        return next(self._parent)

    def get_state(self) -> Any:
        return self._parent.get_state()

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state)


def test_iterators() -> None:
    ds = stream().map(double).batch(4)
    iterator = iter(ds)
    assert str(iterator.explain()) == str(ds.explain())
    first = next(iterator)
    assert iterator.explain() == bushel.explain(iterator)
    iterator.set_state(iterator.get_state())
    assert first["id"].tolist() == [0, 2, 4, 6]
    own = Twice(iterator).explain()
    assert [step.name for step in _all(own.steps)][-2:] == ["batch(4)", "Twice"]
    assert sorted(step.number for step in _all(own.steps)) == [0, 1, 2, 3, 4]
    assert "batch(4)" in Twice(iterator)._repr_html_()


def test_loaders() -> None:
    loader = PIPELINES["a loader"]()
    assert repr(loader) == (
        "DataLoader(data_source=ndarray, sampler=IndexSampler(num_records=1000, "
        f"shard_options={loader._shard_options!r}, shuffle=True, num_epochs=2, seed=3), "
        "operations=[Decode, Batch(8)], worker_count=2)"
    )
    here = bushel.load([1, 2, 3], batch_size=2)
    iterator = iter(here)
    assert str(iterator.explain()) == str(here.explain())
    assert "mp_prefetch" not in str(here.explain())
    assert repr(iterator) == f"DataLoaderIterator({here!r})"
    assert "DataLoader" in here.explain().what
    broken = bushel.DataLoader(
        data_source=[1], sampler=_Broken(), shard_options=bushel.NoSharding()
    )
    assert broken.explain().problem == "no step of mine"
    assert "no step of mine" in broken._repr_html_()


class _Broken:
    def __getitem__(self, step: int) -> Any:
        raise RuntimeError("no step of mine")

    def __repr__(self) -> str:
        raise AssertionError("shown")


def test_what_is_explained_is_a_pipeline() -> None:
    with pytest.raises(TypeError, match=r"`explain` takes a dataset, .* and got a list"):
        bushel.explain([1, 2])


def test_lambdas_have_their_line() -> None:
    (_, step) = MapDataset.range(3).map(lambda x: x).explain().steps
    assert step.name.startswith("map(<lambda> at test_explain.py:")
    assert step.notes == ()


def test_files_are_told(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"part-{number}.jsonl").write_text('{"a": 1}\n' * (number + 1))
    ds = MapDataset.source(JsonLinesDataSource(tmp_path))
    (step,) = ds.explain().steps
    assert step.notes == ("54 bytes", f"3 files, {tmp_path}/part-*")


def test_texts_of_steps() -> None:
    step = ExplainedStep(0, "map", "Each", place="workers", workers=1, threads=1, in_order=False)
    assert (step.runs, step.count) == ("1 worker, <= 1 thread", "?")
