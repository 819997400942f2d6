"""`bushel.torch.loader`: epochs over a dataset as tensors, resumable at any batch."""

import os
from collections.abc import Callable, Iterator
from typing import Any

from bushel.core.arguments import explains, whole
from bushel.deliver.accelerate_job import as_it_is, has_share
from bushel.deliver.torch_job import torch_process
from bushel.errors import PlanError
from bushel.lanes.merge import merge_states
from bushel.loader.epochs import Epochs
from bushel.loader.loader import DataLoader
from bushel.torch.tensors import Tensors, torch_package
from bushel.watch.explain import explain
from bushel.watch.explanation import Explanation
from bushel.watch.iterate import iterate
from bushel.watch.stats import Stats

# What torch's own loader is told, and where it is written here.
_OF_TORCH = {
    "batch_size": "bushel.torch.loader(ds.batch(...))",
    "drop_last": "bushel.torch.loader(ds.batch(..., drop_remainder=True))",
    "shuffle": "bushel.torch.loader(ds.seed(...).shuffle().batch(...))",
    "collate_fn": "bushel.torch.loader(ds.batch(..., batch_fn=...))",
    "num_workers": "ds.to_iter_dataset().mp_prefetch(MultiprocessingOptions(num_workers=...))",
}


@explains(instead=_OF_TORCH)
def loader(
    dataset: Any,
    *,
    steps_per_epoch: int | None = None,
    device: Any = None,
    pin_memory: bool = False,
    whole: bool = False,
    stats: bool = False,
) -> "TorchLoader":
    """Makes a loader for a training with torch: passes over a dataset, as tensors.

    A `MapDataset` goes on with its next epoch in each pass. A stream, or a `DataLoader`, is the
    same in each pass; with `steps_per_epoch` a pass has so many elements, and the next goes on
    where it ended, over data that is repeated for ever, say.

    In a `torch.distributed` job, a dataset with `lanes` gives each rank its share, and a job that
    was saved goes on with another number of ranks.

    >>> from bushel import MapDataset
    >>> batches = loader(MapDataset.range(4).batch(2))
    >>> len(batches), list(batches)
    (2, [tensor([0, 1]), tensor([2, 3])])

    Args:
      dataset: a `MapDataset`, an `IterDataset` or a `DataLoader`, of batches: they are handed
        out as they are.
      device: where tensors are put; by default they stay on the memory of the batch, which is
        not copied. In a program that has made an `Accelerator` of Accelerate the default is its
        device.
      pin_memory: copies tensors to page-locked memory, from which an accelerator takes them
        while something else is computed.
      whole: says that this is not to be shared by ranks: all of them need all of it, or what
        this rank was given is its own part already. Without, it is an error if each rank of a
        job would iterate over the same data.
      stats: has the steps counted and timed in each pass, as `bushel.iterate` does: for
        `loader.stats()`, `loader.report(path)` and `bushel top`.
    """
    epochs = epochs_of(dataset, steps_per_epoch, iterate if stats else iter)
    return TorchLoader(epochs, Tensors(device, pin_memory), whole)


def epochs_of(
    dataset: Any,
    steps_per_epoch: int | None = None,
    make_iterator: Callable[[Any], Any] = iter,
) -> Epochs:
    """Passes over a dataset by a loader, which sees to it that processes do not have the same."""
    return Epochs(dataset, steps_per_epoch, as_it_is, make_iterator)


class TorchLoader:
    """Iterates over a dataset as tensors, pass by pass; see `loader`.

    `state_dict` and `load_state_dict` are those of torchdata's `StatefulDataLoader`: a state
    knows the batch that comes next, and the first pass after it was loaded goes on there.

    There is one position, which the newest iterator moves. Each `iter(loader)` begins a pass, and
    an older iterator that is asked for more is told so by an error.
    """

    def __init__(self, epochs: Epochs, tensors: Tensors, whole: bool = False) -> None:
        self._epochs, self._tensors, self._whole = epochs, tensors, whole

    def __iter__(self) -> Iterator[Any]:
        """Begins the next pass, or goes on with the one that was loaded."""
        if not self._whole:
            _refuse_copies(self._epochs)
        return map(self._tensors.placing(), iter(self._epochs))

    def __len__(self) -> int:
        """The number of batches of a pass, where it is known without reading."""
        length = self._epochs.length
        if length is None:
            raise TypeError(
                "this loader has no length: its data is endless, or steps leave elements out. "
                "Pass `steps_per_epoch=` to `bushel.torch.loader`, or count steps (`max_steps`)."
            )
        return length

    @property
    def epoch(self) -> int:
        """The number of the pass that is under way, or comes next."""
        return self._epochs.epoch

    @property
    def sampler(self) -> "PassChoice":
        """For programs that call `loader.sampler.set_epoch(epoch)` before each pass."""
        return PassChoice(self._epochs)

    def state_dict(self) -> dict[str, Any]:
        """The position, as a dict of plain values.

        Where lanes are owned by several ranks, each has the state of its own; `gather_state`
        puts them together, for any number of ranks.
        """
        return self._epochs.get_state()

    def load_state_dict(self, state: Any, strict: bool = False) -> None:
        """Goes to a position that `state_dict` returned, or the list of those of all ranks.

        `strict` refuses a state whose functions or files have changed since.
        """
        self._epochs.set_state(state, strict)

    def stats(self) -> Stats:
        """Statistics of the pass that is under way, or of the last one.

        With `steps_per_epoch`, of all passes so far over the same data: one goes on where the other
        ended.

        >>> from bushel import MapDataset
        >>> batches = loader(MapDataset.range(40).map(abs).batch(4), stats=True)
        >>> elements = len(list(batches))
        >>> {step.name: step.records for step in batches.stats().steps}["map(abs)"]
        40
        """
        made: Stats = self._used().stats()
        return made

    def report(self, path: str | os.PathLike[str], *, private: bool = True) -> None:
        """Writes a page about that pass: see `bushel.DatasetIterator.report`."""
        self._used().report(path, private=private)

    def _used(self) -> Any:
        if self._epochs.used is None:
            raise PlanError("this loader has not been iterated over yet: there are no statistics.")
        return self._epochs.used

    def explain(self) -> Explanation:
        """Tells the steps of its data, and where each of them runs; reads nothing."""
        return explain(self._epochs.data)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def close(self) -> None:
        """Stops threads and worker processes; the next pass starts its own."""
        self._epochs.close()

    def __repr__(self) -> str:
        return f"bushel.torch.loader({self._epochs.data!r})"


class PassChoice:
    """What programs take for the sampler of a loader: it is told the number of a pass."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def set_epoch(self, epoch: int) -> None:
        """Has the next pass be that of this epoch: the rest of it, if its state was loaded.

        With `steps_per_epoch` passes follow each other, and this has no effect.
        """
        number = whole(epoch, "epoch")
        if number < 0:
            raise PlanError(f"epochs are numbered from 0 on, and this is {number}.")
        self._epochs.go_to(number)


def gather_state(loader: TorchLoader) -> dict[str, Any]:
    """Returns one state of the loaders of all ranks, from which any number of ranks can go on.

    Every rank of the `torch.distributed` job has to call it, after the same step.
    """
    state = loader.state_dict()
    process = torch_process()
    if process is None:
        return state
    states: list[Any] = [None] * process[1]
    torch_package().distributed.all_gather_object(states, state)
    return merge_states(states)


class AllRanks:
    """The state of a loader in all ranks of a job; see `all_ranks`."""

    def __init__(self, loader: TorchLoader) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, Any]:
        """One state of the loaders of all ranks, every one of which has to call this."""
        return gather_state(self._loader)

    def load_state_dict(self, state: Any) -> None:
        """Goes to the position of a state, with any number of ranks."""
        self._loader.load_state_dict(state)


def all_ranks(loader: TorchLoader) -> AllRanks:
    """Returns an object whose `state_dict` is that of all ranks, for tools that save one of them.

    `accelerator.register_for_checkpointing(all_ranks(loader))`, say: Accelerate asks every process
    for its state, and keeps that of the first.
    """
    return AllRanks(loader)


def _refuse_copies(epochs: Epochs) -> None:
    """Raises where each of several ranks would iterate over the same data."""
    rank, count = torch_process() or (0, 1)
    if count == 1:
        return
    if isinstance(epochs.data, DataLoader):
        shares = epochs.data._recipe.shard_options.shard_count % count == 0
    else:
        shares = has_share(epochs.node, count)
    if not shares:
        raise PlanError(
            f"this is rank {rank} of {count}, and every rank would iterate over the same data. "
            "Write `ds.lanes(n).batch(size)` over a random-access dataset, with a number of lanes "
            "that the numbers of ranks divide: each rank then has its share of every batch, and "
            "another number of ranks can go on from a checkpoint. Or take a share, `ds[rank::"
            "count]`, before anything else. If every rank is to have all of it, say so: "
            "`bushel.torch.loader(ds, whole=True)`."
        )
