"""Datasets of Hugging Face as sources: the same records, read from their tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, LargeList, List, Value

import bushel
from bushel.core.stack import stack
from bushel.errors import SourceError
from bushel.run.inline import compile_node
from bushel.sources.huggingface import HuggingFaceDataset
from bushel.sources.memory import source_node
from tests.grain.oracle import assert_same

ROWS = 23


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


PLAIN = {
    "int": Value("int32"),
    "small": Value("uint8"),
    "float": Value("float32"),
    "half": Value("float16"),
    "flag": Value("bool"),
    "label": ClassLabel(names=["no", "yes"]),
}
OTHER = {
    "large": Value("uint64"),
    "text": Value("string"),
    "bytes": Value("binary"),
    "time": Value("timestamp[us]"),
    "tokens": List(Value("int16")),
    "long": List(Value("int16")),
    "large_list": LargeList(Value("int64")),
    "empty": List(Value("int32")),
    "pair": List(Value("float64"), length=2),
    "words": List(Value("string")),
    "nested": List(List(Value("int32"))),
    "deeper": List(List(List(Value("float32")))),
    "inner": {"x": Value("int32"), "name": Value("string")},
    "rows": List({"x": Value("int32")}),
}


def values(name: str, nulls: bool = False) -> list[Any]:
    made: dict[str, Any] = {
        "int": lambda i: i - 5,
        "small": lambda i: i,
        "float": lambda i: i / 3,
        "half": lambda i: i / 2,
        "flag": lambda i: i % 2 == 0,
        "label": lambda i: i % 2,
        "large": lambda i: i,
        "text": lambda i: "ä" * (i % 4),
        "bytes": lambda i: b"\xff" * (i % 4),
        "time": lambda i: np.datetime64(i, "us").item(),
        "tokens": lambda i: list(range(i % 4)),
        "long": lambda i: list(range(i, i + 40 + i % 3)),
        "large_list": lambda i: list(range(-i, 50_000, 1000)),
        "empty": lambda i: [],
        "pair": lambda i: [i / 3, -i],
        "words": lambda i: ["a"] * (i % 3),
        "nested": lambda i: [list(range(i, i + n)) for n in range(i % 4)],
        "deeper": lambda i: [[[i / 2] * n for n in range(m)] for m in range(i % 3)],
        "inner": lambda i: {"x": i, "name": str(i)},
        "rows": lambda i: [{"x": i}] * (i % 3),
    }
    return [None if nulls and i % 5 == 3 else made[name](i) for i in range(ROWS)]


def dataset(names: Any, nulls: bool = False) -> Dataset:
    features = Features({name: {**PLAIN, **OTHER}[name] for name in names})
    return Dataset.from_dict({name: values(name, nulls) for name in names}, features=features)


def views(made: Dataset, folder: Path) -> list[Dataset]:
    """The same dataset in memory, on disk in several files, and with its rows chosen."""
    made.save_to_disk(folder / "saved", num_shards=3)
    saved = datasets.load_from_disk(folder / "saved")
    assert len(saved.cache_files) == 3
    return [
        made,
        saved,
        saved.shuffle(seed=1),
        saved.shuffle(seed=1).select(range(3, 20, 4)),
        saved.shard(3, 1),
        made.select(range(4, 19)),
        saved.select(range(4, 19)),
        datasets.concatenate_datasets([made, saved]),
    ]


def check(given: Dataset, fast: bool = True) -> None:
    """Compares all ways to read a dataset with its own way, record by record."""
    records = [given[i] for i in range(len(given))]
    source = HuggingFaceDataset(given)
    assert (source._begin() is not None) is fast
    assert_same([source[i] for i in range(len(given))], records)
    keys = np.random.default_rng(2).integers(0, len(given), 3 * len(given))
    assert_same(source.__getitems__(keys.tolist()), [records[key] for key in keys.tolist()])
    ds = bushel.MapDataset.source(given)
    assert_same(list(ds), records)
    block = compile_node(source_node(given)).at(np.arange(4))
    for part in (block, block.part(1, 3), block.select(np.array([3, 0]))):
        assert_same(part.rows(), [records[i] for i in part.positions.tolist()])


@pytest.mark.parametrize("form", [None, "numpy"])
def test_numbers_are_read_as_columns(tmp_path: Path, form: str | None) -> None:
    for given in views(dataset(PLAIN), tmp_path):
        given = given.with_format(form)
        check(given)
        records = [given[i] for i in range(len(given))]
        columns = HuggingFaceDataset(given).read_columns(np.arange(len(given)))
        assert columns is not None
        assert_same(columns.gather(), stack(records))
        batches = list(bushel.MapDataset.source(given).batch(4, drop_remainder=True))
        starts = range(0, len(records) - 3, 4)
        assert_same(batches, [stack(records[start : start + 4]) for start in starts])


def test_other_values_are_read_from_the_table(tmp_path: Path) -> None:
    for given in views(dataset([*PLAIN, *OTHER]), tmp_path):
        check(given)
    for given in views(dataset([*PLAIN, *OTHER], nulls=True), tmp_path):
        check(given)


@pytest.mark.parametrize("name", [*PLAIN, *OTHER])
@pytest.mark.parametrize("nulls", [False, True])
def test_a_column_by_itself(name: str, nulls: bool) -> None:
    given = dataset([name], nulls)
    check(given)
    if name in ("tokens", "pair", "time") and not nulls:
        check(given.with_format("numpy"))


def test_batches_are_stacks_of_python_numbers() -> None:
    """As a stack of what the library gives out: 64 bits, whatever a feature is stored as."""
    batch: Any = bushel.MapDataset.source(dataset(PLAIN)).batch(5)[0]
    kinds = {name: column.dtype.name for name, column in batch.items()}
    whole, real = "int64", "float64"
    assert list(kinds.values()) == [whole, whole, real, real, "bool", whole]
    numpys: Any = bushel.MapDataset.source(dataset(PLAIN).with_format("numpy")).batch(5)[0]
    kinds = {name: column.dtype.name for name, column in numpys.items()}
    assert list(kinds.values()) == ["int32", "uint8", "float32", "float16", "bool", "int64"]


def test_what_has_to_be_made_is_left_to_the_library() -> None:
    given = dataset(PLAIN)
    images = Dataset.from_dict(
        {"image": [np.full((2, 2, 3), i, np.uint8) for i in range(4)]},
        features=Features({"image": datasets.Image()}),
    )
    source = HuggingFaceDataset(images)
    assert source._begin() is None
    assert [np.asarray(record["image"]).max() for record in source.__getitems__([2, 0])] == [2, 0]
    doubled = given.with_transform(lambda rows: {"int": [2 * value for value in rows["int"]]})
    check(doubled, fast=False)
    some = given.with_format("numpy", columns=["int"], output_all_columns=True)
    assert HuggingFaceDataset(some)._begin() is None
    torch = HuggingFaceDataset(given.with_format("torch"))
    assert torch._begin() is None
    assert type(torch[3]["int"]).__name__ == "Tensor"
    text = HuggingFaceDataset(dataset(["text"]).with_format("numpy"))
    assert text._begin() is None
    assert_same(text[3], dataset(["text"]).with_format("numpy")[3])


def test_columns_of_a_format() -> None:
    check(dataset(PLAIN).with_format(columns=["label", "int"]))
    check(dataset(PLAIN).with_format("numpy", columns=["int"]))


def test_keys_outside() -> None:
    source = HuggingFaceDataset(dataset(PLAIN))
    assert repr(source) == "HuggingFaceDataset(23 records)"
    for wrong in (-1, ROWS):
        with pytest.raises(IndexError, match=f"has no record {wrong}; it has 23"):
            source[wrong]
    empty = Dataset.from_dict({"x": []})
    assert list(bushel.MapDataset.source(empty)) == []


def test_workers_and_the_loader(tmp_path: Path) -> None:
    dataset(PLAIN).save_to_disk(tmp_path / "saved")
    given = datasets.load_from_disk(tmp_path / "saved").shuffle(seed=3)
    stream = bushel.MapDataset.source(given).seed(1).shuffle().batch(5).to_iter_dataset()
    options = bushel.MultiprocessingOptions(num_workers=1)
    assert_same(list(stream.mp_prefetch(options)), list(stream))
    in_memory = bushel.MapDataset.source(dataset([*PLAIN, "text"])).to_iter_dataset()
    assert_same(list(in_memory.mp_prefetch(options)), list(in_memory))
    loaded = bushel.load(given, batch_size=5, shuffle=False, num_epochs=1)
    assert_same(next(iter(loaded)), stack([given[i] for i in range(5)]))


def test_what_is_no_source() -> None:
    given = dataset(PLAIN)
    with pytest.raises(SourceError, match="IterableDataset has only a first and a next"):
        bushel.MapDataset.source(given.to_iterable_dataset())
    both = datasets.DatasetDict({"train": given, "test": given})
    with pytest.raises(SourceError, match=r"It has 'train', 'test'; write `ds\['train'\]`"):
        bushel.MapDataset.source(both)


class Doubled(Dataset):  # type: ignore[misc]
    """A dataset of the user's own, which gives out something else."""

    def __getitem__(self, key: Any) -> Any:
        row = super().__getitem__(key)
        return {"int": 2 * row["int"]} if isinstance(key, int) else row


def test_a_class_of_the_users_own_is_taken_as_it_is() -> None:
    given = Doubled(dataset(["int"]).data)
    assert not isinstance(getattr(source_node(given), "source", None), HuggingFaceDataset)
