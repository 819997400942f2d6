"""`bushel.torch.loader`: tensors, passes, states, and the ranks of a torch job."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions
from bushel.errors import PlanError, SourceError, StateError
from tests.later import later
from tests.patience import PATIENCE_SECONDS
from tests.thorough import slow

torch = later("torch")
ROOT = Path(__file__).parent.parent.parent


def numbers(loader: Any) -> list[list[int]]:
    return [np.asarray(batch).tolist() for batch in loader]


def shuffled() -> Any:
    return MapDataset.range(22).seed(3).shuffle().batch(4)


def as_data_loader() -> Any:
    sampler = bushel.samplers.IndexSampler(22, shuffle=True, seed=5, num_epochs=1)
    source = bushel.sources.RangeDataSource(0, 22, 1)
    return bushel.DataLoader(
        data_source=source, sampler=sampler, operations=[bushel.transforms.Batch(4)]
    )


# What is given to a loader, how long a pass is, and whether the second is another order.
DATA: dict[str, tuple[Any, int | None, int | None, bool]] = {
    "map": (shuffled, None, 6, True),
    "filtered map": (
        lambda: MapDataset.range(40).shuffle(seed=1).filter(lambda x: x % 3 > 0),
        None,
        None,
        True,
    ),
    "map in steps": (shuffled, 5, 5, True),
    "stream": (lambda: shuffled().to_iter_dataset(), None, 6, False),
    "stream in steps": (lambda: shuffled().to_iter_dataset(), 4, 4, True),
    "endless stream in steps": (lambda: shuffled().repeat().to_iter_dataset(), 4, 4, True),
    "filtered stream": (
        lambda: MapDataset.range(40).shuffle(seed=1).to_iter_dataset().filter(lambda x: x % 3 > 0),
        None,
        None,
        False,
    ),
    "lanes": (lambda: MapDataset.range(40).shuffle(seed=1).lanes(4).batch(8), None, 5, False),
    "DataLoader": (as_data_loader, None, 6, False),
}


@pytest.mark.parametrize("name", DATA)
def test_a_state_at_every_batch(name: str) -> None:
    make, steps, length, differs = DATA[name]
    loader = bushel.torch.loader(make(), steps_per_epoch=steps)
    states, passes = [loader.state_dict()], []
    for _ in range(3):
        seen = []
        for batch in loader:
            seen.append(np.asarray(batch).tolist())
            states.append(json.loads(json.dumps(loader.state_dict())))
        passes.append(seen)
    if length is None:
        with pytest.raises(TypeError, match="no length"):
            len(loader)
    else:
        assert len(loader) == length
        assert all(len(seen) == length for seen in passes)
    assert (passes[0] != passes[1]) == differs

    flat = [batch for seen in passes for batch in seen]
    for at, state in enumerate(states):
        resumed = bushel.torch.loader(make(), steps_per_epoch=steps)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        rest = []
        while len(rest) < len(flat) - at:
            rest += numbers(resumed)
        assert rest == flat[at:], at


def test_a_pass_that_is_left_is_over() -> None:
    loader = bushel.torch.loader(shuffled())
    old = iter(loader)
    first = next(old).tolist()
    assert loader.epoch == 0
    newer = iter(loader)
    with pytest.raises(PlanError, match="share the loader's position"):
        next(old)
    second = numbers(newer)
    assert loader.epoch == 2 and len(second) == 6 and second[0] != first
    with pytest.raises(PlanError, match="share the loader's position"):
        next(old)


def test_iterators_of_which_nothing_was_taken_begin_nothing() -> None:
    loader = bushel.torch.loader(shuffled())
    one, other = iter(loader), iter(loader)
    expected = numbers(bushel.torch.loader(shuffled()))
    assert numbers(other) == expected and list(other) == []
    with pytest.raises(PlanError, match="make two loaders"):
        next(one)
    # Neither do they end a pass that goes on from a state.
    taken = iter(loader)
    next(taken)
    state, rest = loader.state_dict(), numbers(taken)
    loader.load_state_dict(state)
    with pytest.raises(PlanError, match="a state was loaded"):
        next(one)
    iter(loader)
    assert numbers(loader) == rest
    assert numbers(loader) != rest and loader.epoch == 3


def recipe(loader: Any, epochs: range, most: int | None = None, save_at: int | None = None) -> Any:
    """What torchtune's recipes do with a loader."""
    seen: list[Any] = []
    for epoch in epochs:
        loader.sampler.set_epoch(epoch)
        for index, batch in enumerate(loader):
            if index == most:
                break
            seen.append(np.asarray(batch).tolist())
            if len(seen) == save_at:
                return epoch, loader.state_dict(), seen
    return seen


@pytest.mark.parametrize("most", [None, 4])
def test_passes_are_chosen_by_number_as_recipes_do(most: int | None) -> None:
    seen = recipe(bushel.torch.loader(shuffled()), range(3), most)
    each = [numbers(bushel.torch.loader(MapDataset.range(22).seed(3).shuffle().batch(4)
            .repeat()[6 * epoch : 6 * epoch + 6]))[:most] for epoch in range(3)]  # fmt: skip
    assert seen == [batch for epoch in each for batch in epoch]
    for at in (1, 4, 6, 7):
        if most is not None and at % most == 0:
            continue
        epoch, state, before = recipe(bushel.torch.loader(shuffled()), range(3), None, at)
        resumed = bushel.torch.loader(shuffled())
        resumed.load_state_dict(state)
        if at == 6:  # The state was taken within the loop, after the last batch.
            assert numbers(resumed) == []
            epoch += 1
        whole = recipe(bushel.torch.loader(shuffled()), range(3))
        assert before + recipe(resumed, range(epoch, 3)) == whole
    # A stream that goes on does so, whatever the number.
    stream = bushel.torch.loader(shuffled().to_iter_dataset(), steps_per_epoch=4)
    one = recipe(stream, range(2))
    stream = bushel.torch.loader(shuffled().to_iter_dataset(), steps_per_epoch=4)
    assert recipe(stream, range(5, 7)) == one
    with pytest.raises(PlanError, match="from 0 on"):
        stream.sampler.set_epoch(-1)


@slow
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_checkpoint_of_torch_has_the_position(tmp_path: Path) -> None:
    """As torchtitan takes a loader: `__iter__`, and a state in a distributed checkpoint."""
    from torch.distributed import checkpoint

    try:
        from torchtitan.components.dataloader import BaseDataLoader as Base
    except ImportError:
        Base = object

    class Loader(Base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            parts = [MapDataset.range(9).repeat().to_iter_dataset() for _ in range(2)]
            ds = IterDataset.mix(parts, weights=[2, 1]).shuffle(8, seed=1).batch(4)
            self.loader = bushel.torch.loader(ds, steps_per_epoch=100)

        def __iter__(self) -> Any:
            for batch in self.loader:
                yield {"input": batch[:-1]}, batch[1:]

        # States have fields that come and go, and a distributed checkpoint asks for the same ones.
        def state_dict(self) -> dict[str, Any]:
            return {"bushel": json.dumps(bushel.torch.gather_state(self.loader))}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.loader.load_state_dict(json.loads(state["bushel"]))

    loader = Loader()
    taken = iter(loader)
    for _ in range(5):
        next(taken)
    checkpoint.save({"dataloader": loader}, checkpoint_id=str(tmp_path), no_dist=True)
    expected = [next(taken)[1].tolist() for _ in range(5)]
    resumed = Loader()
    checkpoint.load({"dataloader": resumed}, checkpoint_id=str(tmp_path), no_dist=True)
    rest = iter(resumed)
    assert [next(rest)[1].tolist() for _ in range(5)] == expected


def test_states_that_do_not_fit_are_refused_and_change_nothing() -> None:
    loader = bushel.torch.loader(shuffled())
    next(iter(loader))
    state = loader.state_dict()
    other = bushel.torch.loader(MapDataset.range(22).batch(4)).state_dict()
    bad = [None, {}, [], other, {"epoch": 0, "step": 1}]
    for wrong in [*bad, state | {"epoch": -1}, state | {"step": "1"}]:
        with pytest.raises(StateError):
            loader.load_state_dict(wrong)
        assert loader.state_dict() == state


def test_what_is_no_dataset_is_refused() -> None:
    for wrong, words in [
        (iter(shuffled()), "one pass"),
        ([1, 2], r"MapDataset.source"),
        (3, "builtins.int"),
    ]:
        with pytest.raises(TypeError, match=words):
            bushel.torch.loader(wrong)
    with pytest.raises(PlanError, match="must be positive"):
        bushel.torch.loader(shuffled(), steps_per_epoch=0)
    empty = MapDataset.range(5).to_iter_dataset().filter(lambda _: False)
    with pytest.raises(SourceError, match="no elements"):
        next(iter(bushel.torch.loader(empty, steps_per_epoch=2)))
    assert list(bushel.torch.loader(MapDataset.range(0))) == []


def test_an_element_that_fails_does_not_end_the_pass() -> None:
    def fails(number: int) -> int:
        if number == 2:
            raise ZeroDivisionError
        return number

    taken = iter(bushel.torch.loader(MapDataset.range(4).map(fails)))
    assert [next(taken), next(taken)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(taken)
    assert list(taken) == [3]


def test_tensors_are_on_the_memory_of_batches() -> None:
    batch = {
        "image": np.ones((2, 3, 4), np.uint8),
        "half": np.arange(4, dtype=ml_dtypes.bfloat16),
        "text": np.array(["a", "b"]),
        "parts": (np.float32(1.5), [np.zeros(2, np.int64)], None),
        "big-endian": np.arange(3, dtype=">i4"),
        "backwards": np.arange(3)[::-1],
        "fixed": np.frombuffer(b"abc", np.uint8),
        "empty": np.zeros((0, 3), np.float32),
    }
    made = bushel.torch.to_tensors(batch)
    assert made["image"].data_ptr() == batch["image"].ctypes.data
    assert made["half"].dtype == torch.bfloat16 and made["half"].tolist() == [0, 1, 2, 3]
    assert made["half"].data_ptr() == batch["half"].ctypes.data
    assert made["text"] is batch["text"] and made["parts"][2] is None
    assert made["parts"][0].item() == 1.5 and made["parts"][1][0].dtype == torch.int64
    assert made["big-endian"].tolist() == [0, 1, 2]
    assert made["backwards"].tolist() == [2, 1, 0]
    made["fixed"][0] = 0  # It is a copy, which may be written to.
    assert made["empty"].shape == (0, 3)


def test_batches_of_workers_are_not_copied() -> None:
    ds = MapDataset.source({"x": np.arange(1 << 16, dtype=np.float32).reshape(8, -1)}).batch(4)
    stream = ds.to_iter_dataset().mp_prefetch(MultiprocessingOptions(num_workers=1))
    loader = bushel.torch.loader(stream)
    arrays = list(stream)
    assert [torch.equal(one["x"], torch.from_numpy(other["x"])) for one, other in
            zip(loader, arrays, strict=True)] == [True, True]  # fmt: skip
    loader.close()
    view = arrays[0]["x"]
    assert bushel.torch.to_tensors(view).data_ptr() == view.ctypes.data


def test_pinned_memory_without_an_accelerator_is_said() -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    with pytest.warns(UserWarning, match="torch finds none here"):
        loader = bushel.torch.loader(shuffled(), pin_memory=True)
    assert len(numbers(loader)) == 6
    with pytest.raises(RuntimeError, match="nowhere"):
        bushel.torch.loader(shuffled(), device="nowhere")
    with pytest.raises(PlanError, match="torch finds none here"):
        bushel.torch.loader(shuffled(), device="cuda:1")
    assert next(iter(bushel.torch.loader(shuffled(), device="meta"))).device.type == "meta"


def test_a_state_can_be_kept_anywhere() -> None:
    loader = bushel.torch.loader(shuffled())
    state = loader.state_dict()
    assert copy.deepcopy(state) == state and state["epoch"] == 0
    assert "bushel.torch.loader(" in repr(loader)


@pytest.fixture(scope="module")
def told() -> Any:
    paths = [str(Path(bushel.__file__).parent.parent), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.frameworks.torch_ranks"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_job_of_four_ranks_goes_on_with_two(told: Any) -> None:
    steps = [
        [record for rank in ranks for record in rank]
        for job in (told["four"], told["two"])
        for ranks in zip(*job, strict=True)
    ]
    assert steps == told["expected"]
    assert told["weights"][0] == told["weights"][1]


def test_ranks_that_would_have_the_same_data_are_refused(told: Any) -> None:
    for rank, (text, everything, share) in enumerate(told["refused"]):
        assert f"this is rank {rank} of 2" in text and "whole=True" in text
        assert everything == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert share[0][0] == rank


def test_a_rank_that_leaves_is_noticed(told: Any) -> None:
    assert "closed its iterator" in told["left"][0] and told["left"][1] == "closed"


def test_torchrun_is_believed_before_the_job_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "a", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    lanes = MapDataset.range(8).lanes(4)
    assert numbers(bushel.torch.loader(lanes.batch(4))) == [[2, 3], [6, 7]]
    with pytest.raises(PlanError, match="init_process_group"):
        list(lanes.filter(lambda x: x > 0).batch(4))


def test_mixtures_of_streams_keep_their_states() -> None:
    def make() -> Any:
        parts = [MapDataset.range(9).repeat().to_iter_dataset() for _ in range(2)]
        return IterDataset.mix(parts, weights=[2, 1]).batch(4)

    loader = bushel.torch.loader(make(), steps_per_epoch=3)
    first = numbers(loader)
    state = loader.state_dict()
    second = numbers(loader)
    resumed = bushel.torch.loader(make(), steps_per_epoch=3)
    resumed.load_state_dict(state)
    assert numbers(resumed) == second != first


def test_what_torchs_own_loader_is_told() -> None:
    with pytest.raises(TypeError, match=r"mean `bushel\.torch\.loader\(ds\.batch\("):
        bushel.torch.loader(shuffled(), batch_size=4)


def test_a_loader_has_statistics_and_explains_itself(tmp_path: Path) -> None:
    ds = MapDataset.range(40).shuffle(seed=1).map(abs).batch(4)
    batches = bushel.torch.loader(ds, stats=True)
    assert str(batches.explain()) == str(bushel.explain(batches)) == str(ds.explain())
    assert "map(abs)" in batches._repr_html_()
    with pytest.raises(PlanError, match="has not been iterated over yet"):
        batches.stats()
    for _ in range(2):
        assert len(list(batches)) == 10
        # Those of a pass, also when it is over.
        steps = {step.name: step.records for step in batches.stats().steps or ()}
        assert (steps["map(abs)"], steps["batch(4)"]) == (40, 10)
        # A state at its end is the beginning of the next one, which has no statistics yet.
        batches.load_state_dict(batches.state_dict())
        assert batches.stats().elements == 10
    batches.report(tmp_path / "run.html")
    assert "map(abs)" in (tmp_path / "run.html").read_text()
    plain = bushel.torch.loader(ds)
    assert (
        plain.state_dict()["stream"] == bushel.torch.loader(ds, stats=True).state_dict()["stream"]
    )
    assert len(list(plain)) == 10 and plain.stats().steps is None
    assert plain.stats().elements == 10
