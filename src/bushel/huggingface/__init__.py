"""Integration with Hugging Face: a `Trainer` with exact resume, and `datasets`."""

from typing import TYPE_CHECKING

from bushel.core.lazy_names import lazily

if TYPE_CHECKING:
    from bushel.huggingface.to_datasets import dataset as dataset
    from bushel.huggingface.to_datasets import iterable_dataset as iterable_dataset
    from bushel.huggingface.trainer import Trainer as Trainer
    from bushel.huggingface.trainer import TrainerMixin as TrainerMixin

_HOMES = {
    "Trainer": "huggingface.trainer:Trainer",
    "TrainerMixin": "huggingface.trainer:TrainerMixin",
    "dataset": "huggingface.to_datasets:dataset",
    "iterable_dataset": "huggingface.to_datasets:iterable_dataset",
}
__all__ = ["Trainer", "TrainerMixin", "dataset", "iterable_dataset"]

__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
