"""DataLoader over functions and sources of the user's own that fail."""

import re
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.errors import BatchError
from tests.test_loader import Jitter, NotThird, advance, make, same_records


class Mine(Exception):
    """An exception that only the user knows."""


def fail_at_seven(element: Any) -> Any:
    if element == 7:
        raise Mine(f"no {element}")
    return element


class FailingMap(bushel.transforms.Map):
    def map(self, element: Any) -> Any:
        return fail_at_seven(element)


class FailingIndexMap(bushel.transforms.MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return fail_at_seven(index)


class FailingRandomMap(bushel.transforms.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return fail_at_seven(element)


class FailingTfMap(bushel.transforms.TfRandomMap):
    def np_random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return fail_at_seven(element)


class FailingFilter(bushel.transforms.Filter):
    def filter(self, element: Any) -> bool:
        fail_at_seven(element)
        return True


class FailingFlatMap(bushel.transforms.FlatMap):
    max_fan_out = 1

    def flat_map(self, element: Any) -> list[Any]:
        return [fail_at_seven(element)]


def failing_operation(records: Iterator[Any]) -> Iterator[Any]:
    for record in records:
        fail_at_seven(record.data)
        yield record


class FailingSource:
    def __len__(self) -> int:
        return 12

    def __getitem__(self, key: int) -> int:
        return int(fail_at_seven(key))

    def __repr__(self) -> str:
        return "FailingSource()"


FAILURES: dict[str, tuple[list[Any], str]] = {
    "Map": ([FailingMap()], r"map\(FailingMap\)"),
    "MapWithIndex": ([FailingIndexMap()], r"map_with_index\(FailingIndexMap\)"),
    "RandomMap": ([FailingRandomMap()], r"random_map\(FailingRandomMap, seed=5\)"),
    "the second RandomMap": ([FailingRandomMap()] * 2, r"random_map\(FailingRandomMap, seed=5\)"),
    "TfRandomMap": ([FailingTfMap()], r"random_map\(FailingTfMap, seed=5\)"),
    "Filter": ([FailingFilter()], r"filter\(FailingFilter\)"),
    "FlatMap": ([FailingFlatMap()], r"flat_map\(FailingFlatMap\)"),
    "MapOperation": ([bushel.MapOperation(fail_at_seven)], r"map\(fail_at_seven\)"),
    "own": ([failing_operation], "failing_operation"),
    "after an operation": ([same_records, FailingMap()], r"map\(FailingMap\)"),
    "before an operation": ([FailingMap(), same_records], r"map\(FailingMap\)"),
    "after a filter": ([NotThird(), FailingMap()], r"map\(FailingMap\)"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("read", [(0, 0), (2, 8)], ids=str)
def test_a_failure_stands_where_the_element_would(name: str, read: tuple[int, int]) -> None:
    """With its own type, its traceback and a note; and `next` goes on after it."""
    operations, label = FAILURES[name]
    numbers = [n for n in range(12) if n != 7 and (name != "after a filter" or n % 3)]
    iterator = iter(make(*operations, read_options=bushel.ReadOptions(*read)))
    iterator.start_prefetch()
    before = [n for n in numbers if n < 7]
    assert [next(iterator) for _ in before] == before
    with pytest.raises(Mine, match="no 7") as caught:
        next(iterator)
    notes = "\n".join(caught.value.__notes__)
    assert re.search(f"bushel: raised in `{label}` at position 7", notes), notes
    assert "fail_at_seven" in [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert list(iterator) == [n for n in numbers if n > 7]


@pytest.mark.parametrize("operations", [[], [Jitter(), Jitter()], [same_records]], ids=len)
def test_a_source_that_fails_names_the_key(operations: list[Any]) -> None:
    sampler = bushel.IndexSampler(12, shuffle=True, num_epochs=1, seed=3)
    iterator = iter(
        bushel.DataLoader(data_source=FailingSource(), sampler=sampler, operations=operations)
    )
    keys = [sampler[step].record_key for step in range(12)]
    advance(iterator, keys.index(7))
    with pytest.raises(Mine) as caught:
        next(iterator)
    notes = "\n".join(caught.value.__notes__)
    assert "the source FailingSource failed on key 7" in notes
    assert "raised in `source(FailingSource)`" in notes
    assert len(list(iterator)) == 12 - keys.index(7) - 1


def test_a_state_behind_a_failure_resumes_behind_it() -> None:
    loader = make(FailingMap())
    iterator = advance(iter(loader), 7)
    before = iterator.get_state()
    with pytest.raises(Mine):
        next(iterator)
    behind = iterator.get_state()
    assert list(iterator) == [8, 9, 10, 11]
    iterator.set_state(behind)
    assert list(iterator) == [8, 9, 10, 11]
    iterator.set_state(before)
    with pytest.raises(Mine):
        next(iterator)


def test_a_batch_that_cannot_be_made_loses_only_itself() -> None:
    def join(elements: list[int]) -> list[int]:
        return [fail_at_seven(element) for element in elements]

    iterator = iter(make(bushel.Batch(3, batch_fn=join)))
    assert advance(iterator, 1) is iterator and next(iterator) == [3, 4, 5]
    with pytest.raises(Mine) as caught:
        next(iterator)
    assert "batch(3" in caught.value.__notes__[0]
    assert list(iterator) == [[9, 10, 11]]


def test_stop_iteration_in_a_function_does_not_end_the_stream() -> None:
    class Stop(bushel.transforms.Map):
        def map(self, element: int) -> int:
            if element == 7:
                raise StopIteration
            return element

    iterator = iter(make(Stop()))
    advance(iterator, 7)
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        next(iterator)
    assert list(iterator) == [8, 9, 10, 11]


@pytest.mark.parametrize("batch", [bushel.Batch(4), bushel.BatchOperation(4)], ids=["new", "older"])
def test_unequal_shapes_name_leaf_and_shapes(batch: Any) -> None:
    class Ragged(bushel.transforms.Map):
        def map(self, element: int) -> Any:
            return {"id": element, "image": np.zeros((2, 3 if element == 6 else 4))}

    iterator = iter(make(Ragged(), batch))
    next(iterator)
    words = r"element\['image'\] has shape \(2, 4\) in element 0 .*\(2, 3\) in element 2"
    with pytest.raises(BatchError, match=words):
        next(iterator)
    assert next(iterator)["id"].tolist() == [8, 9, 10, 11]


def test_unequal_structures_name_both() -> None:
    class Changing(bushel.transforms.Map):
        def map(self, element: int) -> Any:
            return {"a": 1} if element % 2 else {"b": 1}

    with pytest.raises(BatchError, match=r"keys \['b'\] in element 0 .* keys \['a'\] in element 1"):
        next(iter(make(Changing(), bushel.Batch(2))))
