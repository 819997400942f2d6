"""`bushel.huggingface.Trainer`: trains on a pipeline, with its place in checkpoints.

The one file that imports transformers.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from bushel.dataset import IterDataset, MapDataset
from bushel.deliver.torch_job import torch_process
from bushel.errors import StateError
from bushel.loader.epochs import Epochs
from bushel.loader.loader import DataLoader
from bushel.torch.tensors import Tensors, torch_package
from bushel.torch.train_loader import TorchLoader, epochs_of, gather_state, loader

try:
    # Not within a function, as optional dependencies are elsewhere: the classes need their bases.
    import transformers
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise ImportError(
        '`bushel.huggingface.Trainer` needs transformers and torch: pip install "bushel[trainer]".'
    ) from error


class TrainerMixin:
    """Has a `Trainer` of transformers, or one that is made of it, take datasets of bushel's.

        class MyTrainer(bushel.huggingface.TrainerMixin, SomeTrainer): ...

    `train_dataset` and `eval_dataset` may then be a `MapDataset`, an `IterDataset`, a `DataLoader`
    or a `bushel.torch.loader`, of batches: dicts that the model is called with. Whatever else they
    are is left to the class that this is mixed with.

    Each epoch of the training is the next pass over the data. Checkpoints have the position, and
    `train(resume_from_checkpoint=...)` goes on with the batch after the last one.
    """

    train_dataset: Any
    eval_dataset: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        data = kwargs.get("train_dataset")
        if isinstance(data, (IterDataset, DataLoader)):
            # A stream has no `len`, and a loader over it has one where that is known.
            kwargs["train_dataset"] = loader(data)
        super().__init__(*args, **kwargs)

    def get_train_dataloader(self) -> Any:
        """The data to train on, as the training loop of transformers takes it."""
        if not _is_ours(self.train_dataset):
            return super().get_train_dataloader()  # type: ignore[misc]
        trainer: Any = self
        trainer.remove_callback(_DataPosition)
        trainer.add_callback(_DataPosition())
        return _TrainerLoader.of(self.train_dataset)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The data to evaluate on, from its beginning."""
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(data, str):
            data = self.eval_dataset[data]
        if not _is_ours(data):
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return _TrainerLoader.of(data)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The data to predict for, from its beginning."""
        if not _is_ours(test_dataset):
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return _TrainerLoader.of(test_dataset)


class Trainer(TrainerMixin, transformers.Trainer):  # type: ignore[misc]
    """The `Trainer` of transformers, for datasets of bushel's; see `TrainerMixin`."""


def _is_ours(data: Any) -> bool:
    return isinstance(data, (MapDataset, IterDataset, DataLoader, TorchLoader))


class _TrainerLoader(TorchLoader):
    """A loader of which a training takes as many batches as it says, and then begins a pass.

    A pass that has all its batches is over at once, not when another is asked for: a checkpoint
    at the end of an epoch is one at the beginning of the next.
    """

    # So many of the batches that are skipped in a training that goes on were trained on, and are
    # not made again.
    skipped = 0

    @classmethod
    def of(cls, data: Any) -> "_TrainerLoader":
        """A loader from the beginning of the data, whatever else iterates over it."""
        if isinstance(data, TorchLoader):
            epochs: Epochs = data._epochs.again()
            return cls(epochs, data._tensors, data._whole)
        return cls(epochs_of(data), Tensors(None, False))

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            if self._epochs.step == self._epochs.length:
                self._epochs.finish()
            yield batch

    @property
    def dataset(self) -> Any:
        """What batches are skipped of, where a training goes on within an epoch."""

        class RestOfPass(torch_package().utils.data.IterableDataset):  # type: ignore[misc]
            def __iter__(_) -> Iterator[Any]:
                yield from repeat(None, self.skipped)
                yield from self

        return RestOfPass()

    # What it is asked for, beside. (Elements are batches already.)
    batch_size = prefetch_factor = None
    drop_last = False


class _DataPosition(transformers.TrainerCallback, ExportableState):  # type: ignore[misc]
    """Puts the position of the data into the state of a training, and the data back there."""

    def __init__(self) -> None:
        # The position of all ranks, and the step that it is after.
        self.position: dict[str, Any] | None = None
        self.step = 0
        self._loader: _TrainerLoader | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint has."""
        if self._loader is not None and torch_process() is None:
            self.position = self._loader.state_dict()
        return {"args": {}, "attributes": {"position": self.position, "step": self.step}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Goes to the position that a checkpoint has."""
        self._loader = data = kwargs["train_dataloader"]
        self.step = state.global_step
        if not state.global_step or args.ignore_data_skip:
            return
        saved = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {})
        if saved.get("position") is None or saved["step"] != state.global_step:
            has = f"that of step {saved['step']}" if saved.get("position") else "none"
            raise StateError(
                f"the checkpoint of step {state.global_step} has no position of the data ({has}), "
                "so that the training cannot go on with the batch after it. A checkpoint has a "
                "position if the `train_dataset` was one of bushel's and it was made at the end "
                "of a step; `ignore_data_skip=True` begins the data anew."
            )
        data.load_state_dict(saved["position"])
        # As many as the training loop counts to where it goes on.
        accumulated = args.gradient_accumulation_steps
        length = data._epochs.length
        updates = args.max_steps if length is None else max(1, -(-length // accumulated))
        data.skipped = state.global_step % updates * accumulated

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Takes note of the step, and of the position of all ranks if a checkpoint may follow."""
        self.step = state.global_step
        if torch_process() is not None and (control.should_save or control.should_evaluate):
            assert self._loader is not None
            self.position = gather_state(self._loader)

    on_epoch_end = on_step_end

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends worker processes, now and not when the loader is collected."""
        if self._loader is not None:
            self.state()
            self._loader.close()
            self._loader = None
