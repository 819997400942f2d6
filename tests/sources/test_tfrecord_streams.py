"""Streams of TFRecord files: Grain's, with its states, and through damage."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grain
import pytest

import bushel
from bushel.errors import RecordError, StateError
from bushel.experimental import InterleaveIterDataset, TFRecordIterDataset
from bushel.sources import write_tfrecords
from tests.grain.oracle import blocks_of, outcome
from tests.sources.test_tfrecord import RECORDS, cache, path

__all__ = ["cache", "path"]


GrainStream = grain.experimental.TFRecordIterDataset


def states(iterator: Any) -> list[Any]:
    """Elements and offsets, up to the end."""
    found: list[Any] = [iterator.get_state()["reader_offset"]]
    for element in iterator:
        found += [element, iterator.get_state()["reader_offset"]]
    return found


@pytest.mark.parametrize("size", [1, 3, 100])
def test_streams_are_grains(path: Path, size: int) -> None:
    write_tfrecords(path, RECORDS)
    with blocks_of(size):
        theirs, ours = iter(GrainStream(str(path))), iter(TFRecordIterDataset(str(path)))
        expected = states(theirs)
        assert states(ours) == expected
        # Grain's states, and our own.
        for count, offset in enumerate(expected[::2]):
            for state in ({"reader_offset": offset}, {**ours.get_state(), "reader_offset": offset}):
                ours.set_state(state)
                assert list(ours) == RECORDS[count:]


def test_a_stream_within_a_pipeline(path: Path) -> None:
    write_tfrecords(path, RECORDS)

    def pipeline(stream: Any) -> Any:
        return iter(stream(str(path)).map(len).filter(bool).batch(2))

    theirs, ours = pipeline(GrainStream), pipeline(TFRecordIterDataset)
    for batch in theirs:
        assert next(ours).tolist() == batch.tolist()
        state = theirs.get_state()
        assert ours.get_state()["reader_offset"] == state["reader_offset"]
        again = pipeline(TFRecordIterDataset)
        again.set_state(state)
        assert [b.tolist() for b in again] == [b.tolist() for b in _rest(ours)]
    assert list(ours) == []


def _rest(iterator: Any) -> list[Any]:
    """What is left, without taking it."""
    state = iterator.get_state()
    rest = list(iterator)
    iterator.set_state(state)
    return rest


Damage = Callable[[bytes], bytes]


DAMAGES: dict[str, tuple[Damage, Sequence[Any]]] = {
    "a header cut short": (lambda data: data[:41], [b"a" * 20, "cut short.* byte 36 .* byte 41"]),
    "data cut short": (lambda data: data[:60], [b"a" * 20, "cut short.* byte 36 .* byte 60"]),
    "data": (
        lambda data: data[:15] + b"b" + data[16:],
        ["byte 0 is damaged: the checksum of its data", b"a" * 20, b"a" * 20],
    ),
    "a length": (
        lambda data: data[:36] + b"\xff" * 6 + data[42:],
        [b"a" * 20, "byte 36 is damaged: the checksum of its length"],
    ),
    "a length that leads on": (
        lambda data: data[:44] + b"\xff" + data[45:],
        [b"a" * 20, "byte 36 is damaged: the checksum of its length"],
    ),
}


@pytest.mark.parametrize(("damage", "expected"), DAMAGES.values(), ids=DAMAGES.keys())
def test_streams_of_damaged_files(path: Path, damage: Damage, expected: Sequence[Any]) -> None:
    write_tfrecords(path, [b"a" * 20] * 3)
    path.write_bytes(damage(path.read_bytes()))
    iterator = iter(TFRecordIterDataset(str(path)))
    for element in expected:
        before = iterator.get_state()
        for _ in range(2):  # From the state before it, the same again.
            iterator.set_state(before)
            if isinstance(element, bytes):
                assert next(iterator) == element
            else:
                with pytest.raises(RecordError, match=f"(?s){re.escape(str(path))}.*{element}"):
                    next(iterator)
    after = iterator.get_state()
    assert list(iterator) == []
    iterator.set_state(after)
    assert list(iterator) == []


def test_streams_that_cannot_begin(path: Path) -> None:
    missing = outcome(lambda: next(iter(GrainStream(str(path))))).error
    with pytest.raises(type(missing), match="there is no file"):
        next(iter(TFRecordIterDataset(str(path))))
    with pytest.raises(TypeError):
        TFRecordIterDataset([str(path)])  # type: ignore[arg-type]
    path.touch()
    iterator = iter(TFRecordIterDataset(str(path)))
    assert list(iterator) == []
    with pytest.raises(StateError, match="reader_offset"):
        iterator.set_state({"next_index": 1})


def test_streams_in_turn_and_from_workers(tmp_path: Path) -> None:
    parts = []
    for letter in "abc":
        write_tfrecords(tmp_path / letter, [f"{letter}{n}".encode() for n in range(5)])
        parts.append(TFRecordIterDataset(str(tmp_path / letter)).map(bytes.decode))
    ds = InterleaveIterDataset(parts, cycle_length=2)
    expected = list(ds)
    assert sorted(expected) == sorted(f"{letter}{n}" for letter in "abc" for n in range(5))
    with_workers = ds.mp_prefetch(bushel.MultiprocessingOptions(num_workers=1))
    assert list(with_workers) == expected
