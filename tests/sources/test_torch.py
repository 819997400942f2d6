"""Datasets of torch: tensors become arrays, without copies and without importing torch."""

import pickle
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset
from torch.utils.data import random_split as split_randomly

import bushel
from bushel.errors import PlanError, SourceError
from bushel.sources import TorchDataSource
from bushel.sources.memory import ColumnsNode, source_node
from tests.sources.reading import check_source, run

IMAGES = torch.arange(60, dtype=torch.uint8).reshape(10, 2, 3)
LABELS = torch.arange(10)
ROWS = [(IMAGES[key].numpy(), np.int64(key)) for key in range(10)]


class Pictures(Dataset[Any]):  # type: ignore[misc]
    """A dataset as people write them."""

    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: int) -> Any:
        if not isinstance(key, int):
            raise TypeError(f"{key!r} is no int")
        return {"image": IMAGES[key], "label": key, "more": [LABELS[key], None, "text"]}


def pictures(keys: Any) -> list[Any]:
    return [
        {"image": IMAGES[key].numpy(), "label": key, "more": [np.int64(key), None, "text"]}
        for key in keys
    ]


def batches(source: Any, size: int) -> Any:
    return bushel.MapDataset.source(source).batch(size)


def test_map_style_datasets() -> None:
    check_source(TorchDataSource(Pictures()), pictures(range(10)), workers=True)
    first, second = split_randomly(Pictures(), [7, 3])
    check_source(TorchDataSource(first), pictures(first.indices))
    both = ConcatDataset([second, Pictures(4)])
    check_source(TorchDataSource(both), pictures([*second.indices, *range(4)]))
    batch = batches(TorchDataSource(Subset(Pictures(), [3, 1])), 2)[0]
    assert batch["image"].tolist() == IMAGES[[3, 1]].tolist()
    assert type(batch["image"]) is np.ndarray


def test_tensor_datasets_are_columns() -> None:
    dataset = TensorDataset(IMAGES, LABELS)
    source = TorchDataSource(dataset)
    node = source_node(source)
    assert isinstance(node, ColumnsNode)
    # The memory of the tensors.
    assert np.shares_memory(node.tree[0], IMAGES.numpy())
    check_source(source, ROWS, workers=True)
    part = Subset(Subset(dataset, range(9, -1, -1)), [0, 3, 2, -1])
    check_source(TorchDataSource(part), [ROWS[key] for key in (9, 6, 7, 0)], workers=True)
    assert TorchDataSource(part).read_columns(np.array([1]))[1].tolist() == [6]
    # As torch itself would read them.
    batch = batches(TorchDataSource(part), 4)[0]
    for column, tensors in zip(batch, zip(*part, strict=True), strict=True):
        assert column.tolist() == torch.stack(tensors).tolist()


def test_many_records_are_read_in_one_call() -> None:
    class Many(Pictures):
        def __getitem__(self, key: int) -> Any:
            raise AssertionError("asked one by one")

        def __getitems__(self, keys: list[int]) -> list[Any]:
            return [LABELS[key] for key in keys]

    assert TorchDataSource(Many()).__getitems__([3, 1]) == [3, 1]
    assert batches(TorchDataSource(Many()), 10)[0].tolist() == [*range(10)]


def test_subclasses_keep_their_own_ways() -> None:
    class Doubled(TensorDataset):  # type: ignore[misc]
        def __getitem__(self, key: int) -> Any:
            return 2 * super().__getitem__(key)[0]

    source = TorchDataSource(Doubled(LABELS))
    assert source.columns is None
    check_source_values(source, [2 * key for key in range(10)])


def check_source_values(source: Any, wanted: list[Any]) -> None:
    assert [source[key] for key in range(len(source))] == wanted
    assert [*bushel.MapDataset.source(source)] == wanted


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(4, 3).t().reshape(3, 4)[:, ::2],
        torch.rand(3, 2, requires_grad=True),
        torch.rand(3, 2, dtype=torch.complex64).conj(),
        torch.rand(3, 2, dtype=torch.complex64).conj().imag,
        torch.rand(3, 2) > 0.5,
        torch.rand(3, 0),
        torch.rand(3, 2).half(),
        torch.rand(3),
    ],
    ids=["steps", "gradient", "conjugate", "negative", "bool", "empty", "half", "numbers"],
)
def test_kinds_of_tensors(tensor: Any) -> None:
    values = tensor.detach().resolve_conj().resolve_neg().numpy()
    check_source(TorchDataSource(TensorDataset(tensor)), [(row,) for row in values])
    rows: Any = [tensor[0], (tensor[1],)]
    read = TorchDataSource(rows)
    assert read[0].tolist() == values[0].tolist()
    assert read[1][0].tolist() == values[1].tolist()
    assert type(read[0]) in (np.ndarray, type(values[0]))


def test_bfloat16() -> None:
    tensor = torch.tensor([[1.5, -2.0], [0.25, 3.0]], dtype=torch.bfloat16)
    source = TorchDataSource(TensorDataset(tensor))
    assert source[1][0].dtype == ml_dtypes.bfloat16
    batch = batches(source, 2)[0][0]
    assert batch.dtype == ml_dtypes.bfloat16
    assert batch.astype(np.float32).tolist() == tensor.float().tolist()
    assert TorchDataSource(Subset(TensorDataset(tensor), [1])).read_columns(np.array([0])) is None
    one: Any = [tensor[0]]
    assert TorchDataSource(one)[0].astype(np.float32).tolist() == [1.5, -2.0]


def test_what_cannot_be_read() -> None:
    class Stream(IterableDataset[int]):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

        def __len__(self) -> int:
            return 3

    with pytest.raises(SourceError, match=r"Stream is an IterableDataset.*map-style dataset below"):
        TorchDataSource(Stream())
    with pytest.raises(SourceError, match="Stream is an IterableDataset"):
        bushel.MapDataset.source(Stream())
    with pytest.raises(SourceError, match="`__len__` and `__getitem__`, and got int"):
        TorchDataSource(3)
    sparse: Any = [{"x": torch.eye(3).to_sparse()}]
    with pytest.raises(PlanError, match=r"element\['x'\] is a tensor of layout.*`tensor.to_dense"):
        TorchDataSource(sparse)[0]
    elsewhere: Any = [torch.zeros(2, device="meta")]
    with pytest.raises(PlanError, match=r"on the device meta.*`tensor.cpu\(\)`"):
        TorchDataSource(elsewhere)[0]


def test_datasets_as_they_are_stay_as_they_are() -> None:
    """What a program of Grain's gets: tensors, until they are stacked."""
    ds: Any = bushel.MapDataset.source(TensorDataset(IMAGES, LABELS))
    assert isinstance(ds[0][0], torch.Tensor)
    assert type(ds.batch(2)[0][0]) is np.ndarray


def test_torch_is_not_imported() -> None:
    columns = pickle.dumps(TorchDataSource(TensorDataset(IMAGES, LABELS)))
    program = (
        "import pickle, sys; from bushel.sources import TorchDataSource\n"
        "TorchDataSource([1, 2])[0]\n"
        "assert pickle.loads(bytes.fromhex(sys.argv[1]))[3][1] == 3\n"
        "print('torch' in sys.modules)"
    )
    assert run(program, columns.hex()) == "False\n"


def test_what_a_source_shows() -> None:
    assert repr(TorchDataSource(Pictures())) == "TorchDataSource(Pictures, 10 records)"
