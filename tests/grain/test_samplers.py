"""Samplers and shards: which record comes at which step, with which random numbers."""

import dataclasses
import pickle
import sys
from collections.abc import Callable
from typing import Any

import grain
import grain.python
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from tests.grain.oracle import Raised, assert_same, examples, outcome

Build = Callable[[Any], Any]


@st.composite
def shards(draw: st.DrawFn) -> dict[str, Any]:
    """The arguments of ShardOptions."""
    count = draw(st.integers(1, 5))
    index = draw(st.integers(0, count - 1))
    return {"shard_index": index, "shard_count": count, "drop_remainder": draw(st.booleans())}


_records = st.one_of(st.integers(1, 30), st.integers(1, 2**40))
_seeds = st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 1))


@st.composite
def samplers(draw: st.DrawFn) -> Build:
    """A function that makes the same sampler in either library."""
    count, shard = draw(_records), draw(shards())
    seed = draw(st.none() | _seeds)
    if draw(st.booleans()):
        return lambda lib: lib.samplers.SequentialSampler(
            count, lib.sharding.ShardOptions(**shard), seed
        )
    arguments = {
        "shuffle": seed is not None and draw(st.booleans()),
        "num_epochs": draw(st.none() | st.integers(1, 4)),
        "seed": seed,
    }
    return lambda lib: lib.samplers.IndexSampler(
        num_records=count, shard_options=lib.sharding.ShardOptions(**shard), **arguments
    )


def _seen(metadata: Any) -> Any:
    """Metadata with what its generator draws, in the place of the generator."""
    rng = metadata.rng
    if rng is None:
        return metadata.index, metadata.record_key, None
    # An odd number of 32-bit draws, and then others, which half a word left over would change.
    return (
        metadata.index,
        metadata.record_key,
        rng.integers(0, 2**32, size=3, dtype=np.uint32),
        rng.random(2),
        rng.standard_normal(dtype=np.float32),
        rng.bit_generator.state["state"]["key"],
    )


@examples(100)
@given(st.data())
def test_metadata_at_steps(data: st.DataObject) -> None:
    build = data.draw(samplers(), label="sampler")
    theirs, ours = build(grain), build(bushel)
    assert repr(ours) == repr(theirs)
    assert len(ours) == len(theirs)
    # The first steps, the last ones and those after the end; negative ones too.
    last = min(len(theirs) + 5, sys.maxsize)
    near = st.integers(-3, 60) | st.integers(last - 10, last)
    for step in data.draw(st.lists(near, min_size=1, max_size=8), label="steps"):
        expected = outcome(lambda s=step: _seen(theirs[s]))
        actual = outcome(lambda s=step: _seen(ours[s]))
        assert_same(expected, actual, f"{theirs!r}[{step}]")


@examples(30)
@given(samplers(), st.integers(0, 40), st.integers(1, 9))
def test_keys_of_many_steps_at_once(build: Build, start: int, count: int) -> None:
    """`locate`, which loaders use, says what the steps say one by one."""
    ours = build(bushel)
    steps = [step for step in range(start, start + count) if step < len(ours)]
    one_by_one = outcome(lambda: [ours[step].record_key for step in steps])
    together = outcome(lambda: ours.locate(np.array(steps, dtype=np.int64)).tolist())
    if steps:
        assert_same(one_by_one, together)


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("shard", ["0 of 1", "0 of 2", "1 of 2", "0 of 3", "1 of 3", "2 of 3"])
def test_every_step(shard: str, epochs: int, drop_remainder: bool) -> None:
    """All steps of a pass, counted by the sampler itself; also where a shard has no records."""
    index, shard_count = map(int, shard.split(" of "))

    def keys(lib: Any, count: int) -> list[int]:
        options = lib.sharding.ShardOptions(index, shard_count, drop_remainder)
        sampler = lib.samplers.IndexSampler(count, options, num_epochs=epochs)
        return [metadata.record_key for metadata in sampler]

    for count in (1, 2, 3, 7, 12):
        expected = outcome(lambda n=count: keys(grain, n))
        assert_same(expected, outcome(lambda n=count: keys(bushel, n)), f"{count} records: ")


def test_a_generator_of_its_own_at_every_access() -> None:
    sampler = bushel.samplers.IndexSampler(6, seed=3)
    first, second = sampler[1].rng, sampler[1].rng
    assert first is not None and second is not None and first is not second
    assert first.random() == second.random()


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_records": 0},
        {"num_records": -1},
        {"num_records": "a"},
        {"num_records": None},
        {"num_records": 2.5},
        {"num_epochs": 0},
        {"num_epochs": -1},
        {"num_epochs": "1"},
        {"shuffle": True},
        {"seed": -1},
        {"seed": 2**32},
        {"seed": "a"},
        {"seed": (1, 2)},
        {"nonsense": 1},
    ],
    ids=str,
)
def test_refused_arguments_of_index_sampler(arguments: dict[str, Any]) -> None:
    arguments = {"num_records": 6, **arguments}
    expected = outcome(lambda: grain.samplers.IndexSampler(**arguments))
    assert isinstance(expected, Raised)
    assert_same(expected, outcome(lambda: bushel.samplers.IndexSampler(**arguments)))


@pytest.mark.parametrize("num_records", [0, -1, "a"])
def test_refused_arguments_of_sequential_sampler(num_records: Any) -> None:
    expected = outcome(lambda: grain.samplers.SequentialSampler(num_records))
    assert isinstance(expected, Raised)
    assert_same(expected, outcome(lambda: bushel.samplers.SequentialSampler(num_records)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_records": 0}, "Got 0 records"),
        ({"num_records": 6, "num_epochs": 0}, "Got 0 epochs"),
        ({"num_records": 6, "shuffle": True}, "requires specifying a seed"),
        ({"num_records": 6, "seed": -1}, "32-bit integer, and is -1"),
        ({"num_records": 6, "shard_options": (0, 2)}, r"`ShardOptions`, and is \(0, 2\)"),
        ({"num_records": 6, "shard_options": None}, r"write `NoSharding\(\)`"),
    ],
    ids=str,
)
def test_messages(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        bushel.samplers.IndexSampler(**arguments)


def test_out_of_range_names_the_range() -> None:
    with pytest.raises(IndexError, match=r"\[0, 12\), and is 12"):
        bushel.samplers.IndexSampler(6, num_epochs=2)[12]


def test_an_empty_shard_says_so() -> None:
    options = bushel.sharding.ShardOptions(2, 3)
    with pytest.raises(ZeroDivisionError, match="fewer records than shards"):
        bushel.samplers.IndexSampler(2, options, num_epochs=1)[0]


@pytest.mark.parametrize("text", ["a", 2.5, None, slice(0, 2)])
def test_a_step_must_be_an_integer(text: Any) -> None:
    with pytest.raises(TypeError):
        bushel.samplers.IndexSampler(6, num_epochs=1)[text]


def test_numpy_integers_are_integers() -> None:
    """Grain stumbles over a numpy seed; bushel takes it for the number that it is."""
    plain = bushel.samplers.IndexSampler(6, shuffle=True, num_epochs=2, seed=3)
    numpy = bushel.samplers.IndexSampler(
        np.int64(6), shuffle=True, num_epochs=np.int32(2), seed=np.uint32(3)
    )
    assert repr(numpy) == repr(plain)
    for step in range(12):
        assert_same(_seen(plain[step]), _seen(numpy[np.int64(step)]))


@pytest.mark.parametrize(
    "build",
    [
        lambda lib: lib.samplers.IndexSampler(6, seed=1, shuffle=True),
        lambda lib: lib.samplers.SequentialSampler(6, lib.sharding.ShardOptions(1, 2), seed=4),
    ],
)
def test_samplers_pickle(build: Build) -> None:
    sampler = build(bushel)
    again = pickle.loads(pickle.dumps(sampler))
    assert repr(again) == repr(sampler) == repr(build(grain))
    assert_same(_seen(sampler[3]), _seen(again[3]))


# Shards.


@given(st.integers(-2, 6), st.integers(-2, 6), st.booleans())
@examples(50)
def test_shard_options(index: int, count: int, drop_remainder: bool) -> None:
    def fields(lib: Any) -> Any:
        options = lib.sharding.ShardOptions(index, count, drop_remainder)
        return repr(options), dataclasses.asdict(options)

    assert_same(outcome(lambda: fields(grain)), outcome(lambda: fields(bushel)))


@pytest.mark.parametrize(
    "build",
    [
        lambda lib: lib.sharding.ShardOptions(1, 2),
        lambda lib: lib.sharding.ShardOptions(shard_index=0, shard_count=3, drop_remainder=True),
        lambda lib: lib.sharding.NoSharding(),
        lambda lib: lib.sharding.ShardByJaxProcess(),
        lambda lib: lib.sharding.ShardByJaxProcess(True),
        lambda lib: lib.sharding.ShardByJaxProcess(drop_remainder=True),
        lambda lib: dataclasses.replace(lib.sharding.ShardOptions(0, 2), shard_index=1),
        lambda lib: pickle.loads(pickle.dumps(lib.sharding.NoSharding())),
    ],
)
def test_shards_by_value(build: Build) -> None:
    theirs, ours = build(grain), build(bushel)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert isinstance(ours, bushel.sharding.ShardOptions)
    assert ours == build(bushel) and hash(ours) == hash(build(bushel))


@pytest.mark.parametrize(
    "build",
    [
        lambda lib: lib.sharding.ShardOptions(0),
        lambda lib: lib.sharding.ShardOptions("a", 2),
        lambda lib: lib.sharding.NoSharding(1),
        lambda lib: lib.sharding.NoSharding(drop_remainder=True),
        lambda lib: dataclasses.replace(lib.sharding.ShardOptions(0, 2), shard_index=5),
        lambda lib: setattr(lib.sharding.ShardOptions(0, 2), "shard_index", 1),
    ],
)
def test_refused_shards(build: Build) -> None:
    expected = outcome(lambda: build(grain))
    assert isinstance(expected, Raised)
    assert_same(expected, outcome(lambda: build(bushel)))


def test_equality_is_between_the_same_kinds() -> None:
    for lib in (grain, bushel):
        sharding = lib.sharding
        assert sharding.NoSharding() != sharding.ShardOptions(0, 1)
        assert sharding.ShardByJaxProcess() != sharding.ShardOptions(0, 1)
        assert sharding.ShardOptions(0, 1) == sharding.ShardOptions(0, 1, False)


def test_shard_by_jax_process_asks_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "process_index", lambda: 2)
    monkeypatch.setattr(jax, "process_count", lambda: 5)
    for lib in (grain, bushel):
        options = lib.sharding.ShardByJaxProcess(drop_remainder=True)
        assert (options.shard_index, options.shard_count) == (2, 5)
        assert options.drop_remainder


def test_shard_by_jax_process_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    options = bushel.sharding.ShardByJaxProcess()
    assert (options.shard_index, options.shard_count) == (0, 1)


# Records.


@pytest.mark.parametrize(
    "build",
    [
        lambda lib: lib.RecordMetadata(1),
        lambda lib: lib.RecordMetadata(1, 2),
        lambda lib: lib.RecordMetadata(index=1, record_key=2).remove_record_key(),
        lambda lib: lib.Record(lib.RecordMetadata(1), 5),
        lambda lib: dataclasses.replace(lib.RecordMetadata(1, 2), index=4),
        lambda lib: lib.Record(metadata=lib.RecordMetadata(1, "key"), data={"a": 1}),
    ],
)
def test_records_by_value(build: Build) -> None:
    assert repr(build(bushel)) == repr(build(grain))
    assert str(build(bushel)) == str(build(grain))
    assert build(bushel) == build(bushel)
    with pytest.raises(TypeError, match="unhashable"):
        hash(build(bushel))


def test_metadata_text_shows_the_generator() -> None:
    def text(lib: Any) -> str:
        return str(lib.RecordMetadata(1, 2, np.random.Generator(np.random.Philox(key=1))))

    assert text(bushel) == text(grain)


def test_removing_a_key_that_is_not_there() -> None:
    without = bushel.RecordMetadata(1)
    assert without.remove_record_key() is without
    with_key = bushel.RecordMetadata(1, 2)
    assert with_key.remove_record_key() == without and with_key.record_key == 2
