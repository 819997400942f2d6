"""DataLoader where Grain has nothing to compare with: states, messages, columns, failures."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.errors import PlanError, SourceError, StateError, StateRangeError
from bushel.sharding import NoSharding, ShardOptions


def make(
    *operations: Any, source: Any = None, seed: int = 5, count: int = 12, **more: Any
) -> "bushel.DataLoader[Any]":
    """A loader over 12 numbers, or over another source."""
    return bushel.DataLoader(
        data_source=bushel.RangeDataSource(0, count, 1) if source is None else source,
        sampler=bushel.IndexSampler(count, num_epochs=1, seed=seed),
        operations=operations,
        **more,
    )


def advance(iterator: Any, count: int) -> Any:
    for _ in range(count):
        next(iterator)
    return iterator


class Double(bushel.transforms.Map):
    def map(self, element: Any) -> Any:
        return 2 * element


class Jitter(bushel.transforms.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element, rng.integers(2**32, dtype=np.uint32), rng.random()


class NotThird(bushel.transforms.Filter):
    def filter(self, element: Any) -> bool:
        return bool(np.any(np.asarray(element) % 3 != 0))


class Twice(bushel.transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [element, -element]


def same_records(records: Iterator[Any]) -> Iterator[Any]:
    """An operation of a user's own."""
    yield from records


# States.


def test_a_state_is_json_that_one_can_read() -> None:
    state = advance(iter(make(Double(), bushel.Batch(5))), 2).get_state()
    assert isinstance(state, bytes)
    text = state.decode()
    assert '\n    "last_seen_indices"' in text
    read = json.loads(text)
    assert read["last_seen_indices"] == {"0": 9}
    assert read["sampler"].startswith("IndexSampler(num_records=12, ")
    assert read["data_source"] == "RangeDataSource(start=0, stop=12, step=1)"
    assert read["bushel"]["operations"] == ["Double", "Batch(5)"]
    assert read["bushel"]["shard"] == "0 of 1"
    assert read["bushel"]["state"] == {"next_index": 10}


def test_an_iterator_prints_its_state() -> None:
    iterator = advance(iter(make()), 3)
    assert iterator.get_state().decode() in str(iterator)


def test_a_state_does_not_hold_the_data() -> None:
    columns = {"x": np.arange(12), "a long name": np.zeros((12, 100))}
    for source in (list(range(12)), np.arange(12), columns, tuple(columns.values())):
        assert len(iter(make(source=source)).get_state()) < 1000


def edited(**changes: Any) -> Callable[[bytes], bytes]:
    """Changes entries of a state; `()` takes one out."""

    def edit(state: bytes) -> bytes:
        read = {**json.loads(state), **changes}
        return json.dumps({name: value for name, value in read.items() if value != ()}).encode()

    return edit


def edited_bushel(**changes: Any) -> Callable[[bytes], bytes]:
    def edit(state: bytes) -> bytes:
        own = {**json.loads(state)["bushel"], **changes}
        return edited(bushel=own)(state)

    return edit


def from_grain(**changes: Any) -> Callable[[bytes], bytes]:
    """A state as Grain writes it, with changes."""
    return edited(bushel=(), **changes)


REFUSED_STATES: dict[str, tuple[Callable[[bytes], Any], str]] = {
    "a str": (lambda s: s.decode(), "state is bytes.*and this is a str"),
    "a dict": (json.loads, "takes the bytes of `get_state.*`load_state_dict`"),
    "None": (lambda s: None, "state is bytes.*and this is a NoneType"),
    "empty": (lambda s: b"", "no JSON: b''"),
    "garbage": (lambda s: b"garbage", "no JSON: b'garbage'"),
    "not text": (lambda s: b"\xff\xfe\xfa", r"no JSON: b'\\xff\\xfe\\xfa'"),
    "truncated": (lambda s: s[: len(s) // 2], "no JSON: b'{"),
    "a list": (lambda s: b"[]", r"no JSON object: b'\[\]'"),
    "a number": (lambda s: b"3", "no JSON object: b'3'"),
    "an empty object": (lambda s: b"{}", "no state of a DataLoader.*It is {}"),
    "of a dataset": (
        lambda s: json.dumps({"next_index": 3}).encode(),
        "no state of a DataLoader: one that a dataset's iterator saved",
    ),
    "of workers": (edited(worker_count=2), "saved by Grain with worker_count=2"),
    "another sampler": (
        edited(sampler="IndexSampler(5)"),
        r"another sampler.\nIn the state: IndexSampler\(5\)\n"
        r"In this DataLoader: IndexSampler\(num_records=12",
    ),
    "another source": (
        edited(data_source="<class 'list'>"),
        "another data_source.\nIn the state: <class 'list'>\n"
        r"In this DataLoader: RangeDataSource\(start=0, stop=12, step=1\)",
    ),
    "another version": (edited_bushel(version=99), "has version 99; .* reads version 1"),
    "another shard": (edited_bushel(shard="1 of 2"), "shard 1 of 2, and .* reads shard 0 of 1"),
    "other operations": (
        edited_bushel(operations=["Double"]),
        r"other operations: `Batch\(2\)` is new, after operation 1 \(`Double`\)\.",
    ),
    "a damaged signature": (edited(bushel=3), "the 'bushel' entry of this state is damaged: 3"),
    "a damaged position": (edited_bushel(state=7), "damaged: its position is 7"),
    "no position": (edited_bushel(state={}), "has no 'next_index'"),
    "a position that is no number": (
        edited_bushel(state={"next_index": "3"}),
        "'next_index' in a state must be a whole number, and is '3'",
    ),
    "a negative position": (edited_bushel(state={"next_index": -1}), "must not be negative"),
    "a position too far": (edited_bushel(state={"next_index": 13}), "at element 13, .* only 12"),
    "of a flat map": (
        edited_bushel(state={"parent": {"next_index": 3}, "next_index_in_buffer": 1}),
        "has no 'next_index'",
    ),
    "Grain's, no position": (from_grain(last_seen_indices={}), "has no position"),
    "Grain's, position of no number": (from_grain(last_seen_indices={"0": "3"}), "has no position"),
    "Grain's, too far": (from_grain(last_seen_indices={"0": 50}), "at element 51, .* only 12"),
    "Grain's, before the start": (
        from_grain(last_seen_indices={"0": -2}),
        "at step -2, which is no step of shard 0 of 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED_STATES)
@pytest.mark.parametrize("read", [(0, 0), (2, 8)], ids=str)
def test_refused_states(name: str, read: tuple[int, int]) -> None:
    """Each says what differs, and the iterator goes on from where it was."""
    change, words = REFUSED_STATES[name]
    loader = make(Double(), bushel.Batch(2), read_options=bushel.ReadOptions(*read))
    iterator = iter(loader)
    iterator.start_prefetch()
    advance(iterator, 2)
    before = iterator.get_state()
    refused = change(advance(iter(loader), 4).get_state())
    with pytest.raises(StateError, match=f"(?s){words}") as caught:
        iterator.set_state(refused)
    assert isinstance(caught.value, ValueError)
    assert iterator.get_state() == before
    assert [batch.tolist() for batch in iterator] == [[8, 10], [12, 14], [16, 18], [20, 22]]


def test_what_is_out_of_range_is_an_index_error_too() -> None:
    iterator = iter(make())
    state = edited_bushel(state={"next_index": 13})(iterator.get_state())
    with pytest.raises(IndexError) as caught:
        iterator.set_state(state)
    assert isinstance(caught.value, StateRangeError)


@pytest.mark.parametrize(
    ("saved", "restored", "words"),
    [
        (make(seed=5), make(seed=6), "another sampler: seed was 5 and is 6 now"),
        (make(count=12), make(count=11), "another sampler: num_records was 12 and is 11 now"),
        (make(), make(source=list(range(12))), "another data_source"),
        (make(), make(Double()), "other operations: `Double` is new"),
        (
            make(seed=5),
            make(Double(), source=list(range(12)), seed=6),
            "another sampler.*another data_source.*other operations",
        ),
        (make(Double(), bushel.Batch(2)), make(bushel.Batch(2), Double()), "other operations"),
        (make(bushel.Batch(2)), make(bushel.Batch(3)), r"Batch\(2\).*Batch\(3\)"),
        (make(bushel.Batch(5)), make(bushel.Batch(5, True)), "drop_remainder=True"),
        (make(Twice()), make(), "other operations"),
        (make(), make(Twice()), "other operations"),
        (make(source={"x": np.arange(12)}), make(source={"y": np.arange(12)}), "keys"),
        (
            make(shard_options=ShardOptions(0, 2)),
            make(shard_options=ShardOptions(1, 2)),
            "belongs to shard 0 of 2, and this DataLoader reads shard 1 of 2",
        ),
    ],
)
def test_states_of_other_loaders(saved: Any, restored: Any, words: str) -> None:
    iterator = advance(iter(restored), 2)
    rest = list(advance(iter(restored), 2))
    with pytest.raises(StateError, match=f"(?s){words}"):
        iterator.set_state(advance(iter(saved), 1).get_state())
    np.testing.assert_equal(list(iterator), rest)


def test_a_source_that_prints_its_address_is_told_what_to_do() -> None:
    class Bare:
        def __len__(self) -> int:
            return 12

        def __getitem__(self, key: int) -> int:
            return key

    one, another = Bare(), Bare()
    state = iter(make(source=one)).get_state()
    with pytest.raises(StateError, match="Give the data_source's class a `__repr__`"):
        iter(make(source=another)).set_state(state)


def test_an_iterator_can_be_made_of_a_state() -> None:
    loader = make(Double())
    state = advance(iter(loader), 9).get_state()
    assert list(bushel.DataLoaderIterator(loader, state)) == [18, 20, 22]
    with pytest.raises(StateError, match="another sampler"):
        bushel.DataLoaderIterator(make(Double(), seed=6), state)
    unchecked = bushel.DataLoaderIterator(make(Double(), seed=6), state, validate_state=False)
    assert list(unchecked) == [18, 20, 22]


def test_states_at_the_end() -> None:
    iterator = iter(make(bushel.Batch(5)))
    assert len(list(iterator)) == 3
    state = iterator.get_state()
    assert next(iterator, None) is None
    iterator.set_state(state)
    assert next(iterator, None) is None
    again = iter(make(bushel.Batch(5)))
    again.set_state(state)
    assert list(again) == []


def test_a_closed_iterator_says_so_and_still_has_its_state() -> None:
    loader = make(Double())
    with iter(loader) as iterator:
        advance(iterator, 4)
        state = iterator.get_state()
    iterator.close()
    assert iterator.get_state() == state
    with pytest.raises(ValueError, match="closed"):
        next(iterator)
    fresh = iter(loader)
    fresh.set_state(state)
    assert next(fresh) == 8


# Arguments.


def test_workers_are_counted() -> None:
    assert make(worker_count=3).multiprocessing_options.num_workers == 3
    assert make(worker_count=None).multiprocessing_options.num_workers >= 1


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"data_source": 3}, SourceError, "`data_source` needs `__getitem__`, and int has none"),
        ({"data_source": iter([3])}, SourceError, "and list_iterator has none"),
        ({"sampler": 3}, TypeError, r"`sampler` needs `__getitem__\(step\)`, and int has none"),
        ({"sampler": [bushel.RecordMetadata(0, 0)]}, PlanError, "pass `shard_options`"),
        ({"shard_options": (0, 2)}, TypeError, r"`ShardOptions`, and is \(0, 2\)"),
        ({"read_options": 3}, TypeError, "`ReadOptions`, and is 3"),
        ({"operations": Double()}, TypeError, r"operations must be a list, .*write `\[...\]`"),
        ({"operations": [3]}, TypeError, "one is 3"),
        ({"worker_count": -1}, PlanError, "worker_count must not be negative, and is -1"),
        ({"worker_buffer_size": -1}, PlanError, "worker_buffer_size .*negative, and is -1"),
        ({"operations": [Twice(), Jitter()]}, PlanError, "Jitter cannot follow a FlatMap"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"data_source": range(6), "sampler": bushel.IndexSampler(6, num_epochs=1)}
    with pytest.raises(error, match=words):
        bushel.DataLoader(**{**given, **arguments})


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ({"x": np.arange(6), "y": [1] * 6}, SourceError, r"element\['y'\].* is a (list|int)"),
        (
            {"x": np.arange(6), "y": np.arange(5)},
            PlanError,
            r"element\['x'\]: 6, element\['y'\]: 5",
        ),
        ((np.arange(6), np.arange(5)), PlanError, r"element\[0\]: 6, element\[1\]: 5"),
    ],
)
@pytest.mark.parametrize("operations", [[], [Jitter(), Jitter()], [same_records]], ids=len)
def test_bad_columns(source: Any, error: type[Exception], words: str, operations: Any) -> None:
    with pytest.raises(error, match=words):
        list(make(*operations, source=source))


def test_an_operation_that_gives_no_records() -> None:
    def bare(records: Iterator[Any]) -> Iterator[Any]:
        return (record.data for record in records)

    with pytest.raises(PlanError, match=r"must yield Records, and .*bare.* yielded a int"):
        list(make(bare))


# Columns.

X, Y = np.arange(12) * 10, np.arange(36, dtype=np.float32).reshape(12, 3)

COLUMN_SOURCES: dict[str, tuple[Any, list[Any]]] = {
    "an array": (Y, list(Y)),
    "an array of numbers": (X, list(X)),
    "a dict": ({"x": X, "y": Y}, [{"x": X[i], "y": Y[i]} for i in range(12)]),
    "a tuple": ((X, Y), [(X[i], Y[i]) for i in range(12)]),
    "nested": ({"a": {"x": X}, "b": (Y,)}, [{"a": {"x": X[i]}, "b": (Y[i],)} for i in range(12)]),
}


@pytest.mark.parametrize("name", COLUMN_SOURCES)
@pytest.mark.parametrize(
    "operations",
    [
        [],
        [bushel.Batch(5)],
        [Jitter()],
        [Jitter(), Jitter()],
        [same_records, bushel.Batch(5)],
        [bushel.Batch(4, drop_remainder=True), Jitter()],
        [bushel.Batch(3, batch_fn=list)],
    ],
    ids=["plain", "batch", "random", "twice random", "own", "random batches", "batch_fn"],
)
def test_columns_give_the_records_of_rows(name: str, operations: list[Any]) -> None:
    columns, rows = COLUMN_SOURCES[name]
    sampler = bushel.IndexSampler(12, ShardOptions(1, 2), shuffle=True, num_epochs=2, seed=4)

    def elements(source: Any) -> list[Any]:
        return list(bushel.DataLoader(data_source=source, sampler=sampler, operations=operations))

    by_rows = elements(rows)
    assert len(by_rows) > 1
    np.testing.assert_equal(elements(columns), by_rows)


@pytest.mark.parametrize("name", COLUMN_SOURCES)
def test_columns_under_a_sampler_of_the_users_own(name: str) -> None:
    columns, rows = COLUMN_SOURCES[name]
    sampler = [bushel.RecordMetadata(index=i, record_key=key) for i, key in enumerate((3, 14, -1))]

    def elements(source: Any) -> list[Any]:
        options = NoSharding()
        return list(bushel.DataLoader(data_source=source, sampler=sampler, shard_options=options))

    np.testing.assert_equal(elements(columns), [rows[3], rows[2], rows[11]])


def test_load_takes_columns() -> None:
    loader = bushel.load({"x": X, "y": Y}, num_epochs=1, batch_size=5)
    assert [batch["x"].tolist() for batch in loader] == [
        X[:5].tolist(), X[5:10].tolist(), X[10:].tolist()
    ]  # fmt: skip


# Reading.


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [Double(), bushel.Batch(5)],
        [NotThird(), Jitter(), bushel.Batch(4, drop_remainder=True)],
        [Jitter(), same_records, bushel.Batch(3)],
        [Twice(), NotThird(), bushel.Batch(7)],
    ],
    ids=["plain", "batch", "filter", "own", "flat"],
)
def test_reading_options_do_not_show(operations: list[Any]) -> None:
    """Neither in the elements nor in the states."""
    sampler = bushel.IndexSampler(40, shuffle=True, num_epochs=2, seed=4)
    seen = []
    for options in (None, bushel.ReadOptions(0, 0), bushel.ReadOptions(4, 8)):
        loader: Any = bushel.DataLoader(
            data_source=range(40), sampler=sampler, operations=operations, read_options=options
        )
        iterator = iter(loader)
        iterator.start_prefetch()
        seen.append([(element, iterator.get_state()) for element in iterator])
    assert len(seen[0]) > 5
    np.testing.assert_equal(seen[1], seen[0])
    np.testing.assert_equal(seen[2], seen[0])


# What Grain's DataLoader does not take.


def test_map_with_index_sees_the_place_in_the_order_of_all_shards() -> None:
    class WithIndex(bushel.transforms.MapWithIndex):
        def map_with_index(self, index: int, element: int) -> tuple[int, int]:
            return index, element

    sampler = bushel.IndexSampler(9, ShardOptions(1, 3), num_epochs=1)
    for operations in ([WithIndex()], [same_records, WithIndex()]):
        loader: Any = bushel.DataLoader(
            data_source=range(9), sampler=sampler, operations=operations
        )
        assert list(loader) == [(1, 3), (4, 4), (7, 5)]


def test_map_batches_in_a_loader() -> None:
    class Tenfold(bushel.MapBatches):
        def map_batches(self, columns: Any) -> Any:
            return columns * 10

    assert list(make(Tenfold(), Double())) == [20 * n for n in range(12)]
    assert [b.tolist() for b in make(bushel.Batch(6), Tenfold())] == [
        [10 * n for n in range(6)], [10 * n for n in range(6, 12)]
    ]  # fmt: skip
