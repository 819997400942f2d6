"""Integration with torch: loaders of tensors, with a state."""

from typing import TYPE_CHECKING

from bushel.core.lazy_names import lazily

if TYPE_CHECKING:
    from bushel.torch.tensors import to_tensors as to_tensors
    from bushel.torch.train_loader import TorchLoader as TorchLoader
    from bushel.torch.train_loader import all_ranks as all_ranks
    from bushel.torch.train_loader import gather_state as gather_state
    from bushel.torch.train_loader import loader as loader

_HOMES = {
    "TorchLoader": "torch.train_loader:TorchLoader",
    "all_ranks": "torch.train_loader:all_ranks",
    "gather_state": "torch.train_loader:gather_state",
    "loader": "torch.train_loader:loader",
    "to_tensors": "torch.tensors:to_tensors",
}
__all__ = ["TorchLoader", "all_ranks", "gather_state", "loader", "to_tensors"]

__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
