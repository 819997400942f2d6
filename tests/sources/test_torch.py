"""Datasets of torch: tensors become arrays, without copies and without importing torch."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import bushel
from bushel.errors import PlanError, SourceError
from bushel.sources import TorchDataSource
from bushel.sources.memory import ColumnsNode, source_node
from tests.later import later
from tests.sources.reading import check_source, run

torch = later("torch")
data = later("torch.utils.data")
parts = later("tests.sources.torch_parts")


def batches(source: Any, size: int) -> Any:
    return bushel.MapDataset.source(source).batch(size)


def test_map_style_datasets() -> None:
    check_source(TorchDataSource(parts.Pictures()), parts.pictures(range(10)), workers=True)
    first, second = data.random_split(parts.Pictures(), [7, 3])
    check_source(TorchDataSource(first), parts.pictures(first.indices))
    both = data.ConcatDataset([second, parts.Pictures(4)])
    check_source(TorchDataSource(both), parts.pictures([*second.indices, *range(4)]))
    batch = batches(TorchDataSource(data.Subset(parts.Pictures(), [3, 1])), 2)[0]
    assert batch["image"].tolist() == parts.IMAGES[[3, 1]].tolist()
    assert type(batch["image"]) is np.ndarray


def test_tensor_datasets_are_columns() -> None:
    dataset = data.TensorDataset(parts.IMAGES, parts.LABELS)
    source = TorchDataSource(dataset)
    node = source_node(source)
    assert isinstance(node, ColumnsNode)
    # The memory of the tensors.
    assert np.shares_memory(node.tree[0], parts.IMAGES.numpy())
    check_source(source, parts.ROWS, workers=True)
    part = data.Subset(data.Subset(dataset, range(9, -1, -1)), [0, 3, 2, -1])
    check_source(TorchDataSource(part), [parts.ROWS[key] for key in (9, 6, 7, 0)], workers=True)
    assert TorchDataSource(part).read_columns(np.array([1]))[1].tolist() == [6]
    # As torch itself would read them.
    batch = batches(TorchDataSource(part), 4)[0]
    for column, tensors in zip(batch, zip(*part, strict=True), strict=True):
        assert column.tolist() == torch.stack(tensors).tolist()


def test_many_records_are_read_in_one_call() -> None:
    class Many(parts.Pictures):
        def __getitem__(self, key: int) -> Any:
            raise AssertionError("asked one by one")

        def __getitems__(self, keys: list[int]) -> list[Any]:
            return [parts.LABELS[key] for key in keys]

    assert TorchDataSource(Many()).__getitems__([3, 1]) == [3, 1]
    assert batches(TorchDataSource(Many()), 10)[0].tolist() == [*range(10)]


def test_subclasses_keep_their_own_ways() -> None:
    class Doubled(data.TensorDataset):  # type: ignore[misc]
        def __getitem__(self, key: int) -> Any:
            return 2 * super().__getitem__(key)[0]

    source = TorchDataSource(Doubled(parts.LABELS))
    assert source.columns is None
    check_source_values(source, [2 * key for key in range(10)])


def check_source_values(source: Any, wanted: list[Any]) -> None:
    assert [source[key] for key in range(len(source))] == wanted
    assert [*bushel.MapDataset.source(source)] == wanted


TENSORS: dict[str, Callable[[], Any]] = {
    "steps": lambda: torch.rand(4, 3).t().reshape(3, 4)[:, ::2],
    "gradient": lambda: torch.rand(3, 2, requires_grad=True),
    "conjugate": lambda: torch.rand(3, 2, dtype=torch.complex64).conj(),
    "negative": lambda: torch.rand(3, 2, dtype=torch.complex64).conj().imag,
    "bool": lambda: torch.rand(3, 2) > 0.5,
    "empty": lambda: torch.rand(3, 0),
    "half": lambda: torch.rand(3, 2).half(),
    "numbers": lambda: torch.rand(3),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_kinds_of_tensors(kind: str) -> None:
    tensor = TENSORS[kind]()
    values = tensor.detach().resolve_conj().resolve_neg().numpy()
    check_source(TorchDataSource(data.TensorDataset(tensor)), [(row,) for row in values])
    rows: Any = [tensor[0], (tensor[1],)]
    read = TorchDataSource(rows)
    assert read[0].tolist() == values[0].tolist()
    assert read[1][0].tolist() == values[1].tolist()
    assert type(read[0]) in (np.ndarray, type(values[0]))


def test_bfloat16() -> None:
    tensor = torch.tensor([[1.5, -2.0], [0.25, 3.0]], dtype=torch.bfloat16)
    source = TorchDataSource(data.TensorDataset(tensor))
    assert source[1][0].dtype == ml_dtypes.bfloat16
    batch = batches(source, 2)[0][0]
    assert batch.dtype == ml_dtypes.bfloat16
    assert batch.astype(np.float32).tolist() == tensor.float().tolist()
    assert (
        TorchDataSource(data.Subset(data.TensorDataset(tensor), [1])).read_columns(np.array([0]))
        is None
    )
    one: Any = [tensor[0]]
    assert TorchDataSource(one)[0].astype(np.float32).tolist() == [1.5, -2.0]


def test_what_cannot_be_read() -> None:
    class Stream(data.IterableDataset):  # type: ignore[misc]
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
    ds: Any = bushel.MapDataset.source(data.TensorDataset(parts.IMAGES, parts.LABELS))
    assert isinstance(ds[0][0], torch.Tensor)
    assert type(ds.batch(2)[0][0]) is np.ndarray


def test_torch_is_not_imported() -> None:
    columns = pickle.dumps(TorchDataSource(data.TensorDataset(parts.IMAGES, parts.LABELS)))
    program = (
        "import pickle, sys; from bushel.sources import TorchDataSource\n"
        "TorchDataSource([1, 2])[0]\n"
        "assert pickle.loads(bytes.fromhex(sys.argv[1]))[3][1] == 3\n"
        "print('torch' in sys.modules)"
    )
    assert run(program, columns.hex()) == "False\n"


def test_what_a_source_shows() -> None:
    assert repr(TorchDataSource(parts.Pictures())) == "TorchDataSource(Pictures, 10 records)"
