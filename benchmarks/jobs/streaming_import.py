"""The way to MosaicML Streaming, which imports torchvision whether or not it is needed."""

from functools import cache
from types import ModuleType


@cache
def import_streaming() -> ModuleType:
    """Imports it even where torchvision was built for CUDA and torch was not.

    Such a torchvision cannot load its own operators, and then cannot be imported, because it
    describes two of them further. No picture goes through it here: any operators do.
    """
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        operators = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(operators)  # it takes its operators along when it goes
    import streaming
    import streaming.base.util

    module: ModuleType = streaming
    return module


_kept: list[object] = []
