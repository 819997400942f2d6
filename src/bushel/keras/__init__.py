"""Integration with Keras 3: datasets for `fit`, `evaluate`, `predict`, and checkpoints."""

from typing import TYPE_CHECKING

from bushel.core.lazy_names import lazily

if TYPE_CHECKING:
    from bushel.keras.data_adapter import Checkpoint as Checkpoint
    from bushel.keras.data_adapter import KerasDataset as KerasDataset
    from bushel.keras.data_adapter import accept_datasets as accept_datasets
    from bushel.keras.data_adapter import dataset as dataset
    from bushel.keras.data_adapter import on_cpu as on_cpu

_HOMES = {
    name: f"keras.data_adapter:{name}"
    for name in ("Checkpoint", "KerasDataset", "accept_datasets", "dataset", "on_cpu")
}
__all__ = ["Checkpoint", "KerasDataset", "accept_datasets", "dataset", "on_cpu"]

__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
