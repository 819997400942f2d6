"""States that Grain saved, of pipelines that `test_streams.py` does not draw."""

import json
from typing import Any

import grain
import pytest

import bushel
from bushel.errors import StateError


def _doubling(lib: Any) -> Any:
    """A stream of the user's own, whose iterator counts and asks its parent for states."""

    class Iterator(lib.DatasetIterator):  # type: ignore[misc]
        def __init__(self, parent: Any) -> None:
            super().__init__(parent)
            self._count = 0

        def __next__(self) -> tuple[int, int]:
            self._count += 1
            return self._count, 2 * next(self._parent)

        def get_state(self) -> dict[str, Any]:
            return {"below": self._parent.get_state(), "count": self._count}

        def set_state(self, state: dict[str, Any]) -> None:
            self._parent.set_state(state["below"])
            self._count = state["count"]

    class Doubling(lib.IterDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return Iterator(self._parent.__iter__())

    return Doubling(lib.MapDataset.range(7).to_iter_dataset(lib.ReadOptions(0, 0)))


BUILDS_ON_OWN = {
    "map": lambda lib, ds: ds.map(str),
    "map_with_index": lambda lib, ds: ds.map_with_index(lambda i, x: (i, x)),
    "filter, batch": lambda lib, ds: ds.filter(lambda x: x[1] % 3).batch(2, batch_fn=list),
    "windows": lambda lib, ds: lib.experimental.WindowShuffleIterDataset(ds, window_size=3, seed=1),
    "mix": lambda lib, ds: lib.IterDataset.mix([ds, ds.map(str)]),
    "prefetch": lambda lib, ds: lib.experimental.ThreadPrefetchIterDataset(
        ds, prefetch_buffer_size=2
    ),
}


@pytest.mark.parametrize("build", BUILDS_ON_OWN.values(), ids=BUILDS_ON_OWN)
def test_of_steps_after_an_iterator_of_the_users(build: Any) -> None:
    ours = build(bushel, _doubling(bushel))
    theirs = iter(build(grain, _doubling(grain)))
    expected = list(ours)
    for number in range(len(expected) + 1):
        restored = iter(ours)
        restored.set_state(json.loads(json.dumps(theirs.get_state())))
        assert list(restored) == expected[number:]
        next(theirs, None)
    theirs.close()


def _twice(lib: Any) -> Any:
    fields = {"flat_map": lambda self, x: [x, -x][: 1 + x % 2], "max_fan_out": 2}
    return type("Twice", (lib.experimental.FlatMapTransform,), fields)()


OPERATIONS = {
    "alone": lambda lib: [_twice(lib)],
    "batch": lambda lib: [_twice(lib), lib.transforms.Batch(2)],
    "two": lambda lib: [_twice(lib), lib.transforms.Batch(3), _Unbatch.of(lib)],
}


class _Unbatch:
    @staticmethod
    def of(lib: Any) -> Any:
        fields = {"flat_map": lambda self, rows: list(rows), "max_fan_out": 3}
        return type("Unbatch", (lib.experimental.FlatMapTransform,), fields)()


def _loader(lib: Any, operations: Any) -> Any:
    sampler = lib.samplers.IndexSampler(5, shuffle=True, seed=3, num_epochs=2)
    return lib.DataLoader(data_source=list(range(5)), sampler=sampler, operations=operations)


@pytest.mark.parametrize("operations", OPERATIONS.values(), ids=OPERATIONS)
def test_of_loaders_with_a_flat_map(operations: Any) -> None:
    """Grain saves them as it does those of datasets."""
    ours = _loader(bushel, operations(bushel))
    expected = [str(element) for element in ours]
    theirs = iter(_loader(grain, operations(grain)))
    for number in range(len(expected) + 1):
        restored = iter(ours)
        restored.set_state(theirs.get_state())
        assert [str(element) for element in restored] == expected[number:]
        next(theirs, None)


def test_a_loader_without_a_flat_map_takes_no_state_of_one() -> None:
    state = iter(_loader(grain, [_twice(grain)])).get_state()
    with pytest.raises(StateError, match="no state of a DataLoader"):
        iter(_loader(bushel, [])).set_state(state)
