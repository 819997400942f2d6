"""`bushel.huggingface`: trainings with the real `Trainer`, and datasets of `datasets`."""

import importlib.util
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset
from bushel.errors import PlanError
from tests.frameworks.programs import ranks, run
from tests.thorough import slow

PROGRAM = "tests.frameworks.hugging_face_fit"


def needs_transformers() -> None:
    for package in ("transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@slow
def test_a_training_goes_on_after_any_batch() -> None:
    needs_transformers()
    told = run("-m", PROGRAM)
    # Steps of the optimizer, and batches.
    expected = {
        "map": (18, 18),
        "accumulated": (15, 27),
        "at the end of an epoch": (12, 12),
        "endless stream": (11, 11),
        "finite stream": (13, 13),
        "workers": (18, 18),
        "loader": (14, 14),
    }
    for name, (steps, batches) in expected.items():
        one = told[name]
        assert (one["steps"], one["batches"]) == (steps, batches), name
        assert one["rest"] and one["equal"], name
        # A stream is the same in each pass. (Of one without a length, the Trainer does not know in
        # which pass it went on.)
        assert one["different"] == (name not in ("finite stream", "workers")), name
        assert one["epoch"][0] == one["epoch"][1] or name == "finite stream"
        assert one["position"] == 6, name
    assert "has no position of the data (none)" in told["refused"]
    first, second, *shape = told["evaluated"]
    assert first == second and shape == [70, 8, 50]


@slow
def test_a_job_of_two_ranks_goes_on_with_one(tmp_path: Path) -> None:
    needs_transformers()
    first = ranks(2, "-m", PROGRAM, "--rank", str(tmp_path), "6", "no")
    then = run("-m", PROGRAM, "--rank", str(tmp_path), "10", "resume")
    steps = [[*one, *other] for one, other in zip(*first, strict=True)] + then
    ds = MapDataset.source({"id": np.arange(70)}).seed(1).shuffle().repeat()
    alone = iter(ds.lanes(4).filter(lambda row: row["id"] % 3 > 0).batch(8))
    assert steps == [next(alone)["id"].tolist() for _ in range(10)]


def rows() -> Any:
    columns = {"id": np.arange(1000), "x": np.arange(2000, dtype=np.float32).reshape(1000, 2)}
    ds = MapDataset.source(columns).seed(1).shuffle()
    return ds.filter(lambda row: row["id"] % 5 > 0)


def ids(found: Any) -> list[int]:
    return [int(row["id"]) for row in found]


def test_the_way_back_to_a_dataset_of_rows(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    types = {"id": datasets.Value("int32"), "x": datasets.List(datasets.Value("float32"))}
    options = {"features": datasets.Features(types), "cache_dir": str(tmp_path)}
    expected = list(rows())
    made = bushel.huggingface.dataset(rows(), **options)
    assert ids(made) == ids(expected) and made.features == datasets.Features(types)
    assert np.array_equal(made[7]["x"], expected[7]["x"])
    # And here again, with random access.
    assert ids(MapDataset.source(made)) == ids(expected)
    stream = bushel.huggingface.dataset(rows().to_iter_dataset(), **options)
    assert ids(stream) == ids(expected)


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_way_back_to_a_stream_of_rows(is_stream: bool) -> None:
    pytest.importorskip("datasets")
    ds = rows().to_iter_dataset() if is_stream else rows()
    made = bushel.huggingface.iterable_dataset(ds)
    expected = ids(rows())
    assert made.num_shards == (1 if is_stream else 4)
    assert ids(made) == ids(made) == expected
    sent = pickle.loads(pickle.dumps(made))
    taken = []
    for row in sent:
        taken.append(int(row["id"]))
        if len(taken) == 300:
            break
    again = bushel.huggingface.iterable_dataset(ds)
    again.load_state_dict(json.loads(json.dumps(sent.state_dict())))
    assert taken + ids(again) == expected


def test_processes_share_a_stream_of_rows() -> None:
    distributed = pytest.importorskip("datasets.distributed")
    torch = pytest.importorskip("torch")
    made = bushel.huggingface.iterable_dataset(rows(), elements_per_shard=100)
    split = distributed.split_dataset_by_node
    parts = [ids(split(made, rank=rank, world_size=2)) for rank in range(2)]
    assert len(parts[0]) > 300 and sorted(parts[0] + parts[1]) == sorted(ids(rows()))
    loader = torch.utils.data.DataLoader(made, batch_size=None, num_workers=2)
    assert sorted(ids(loader)) == sorted(ids(rows()))


def test_what_makes_no_rows_is_refused() -> None:
    pytest.importorskip("datasets")
    with pytest.raises(TypeError, match="an element is a int: 0"):
        next(iter(bushel.huggingface.iterable_dataset(MapDataset.range(3))))
    with pytest.raises(PlanError, match="repeated for ever"):
        bushel.huggingface.dataset(rows().repeat())
    with pytest.raises(TypeError, match=r"got a builtins\.list"):
        bushel.huggingface.dataset([{"x": 1}])
    with pytest.raises(PlanError, match="must be positive, and is 0"):
        bushel.huggingface.iterable_dataset(rows(), elements_per_shard=0)
    endless = bushel.huggingface.iterable_dataset(rows().repeat())
    assert len([row for row, _ in zip(endless, range(900), strict=False)]) == 900
    assert list(bushel.huggingface.iterable_dataset(rows()[:0])) == []
