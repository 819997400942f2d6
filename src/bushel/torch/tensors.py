"""Arrays of an element to tensors: the only file that imports torch."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bushel.core.tree import map_leaves
from bushel.deliver.accelerate_job import accelerate_state
from bushel.errors import MissingPackageError, PlanError


def torch_package() -> Any:
    """Returns torch."""
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError("`bushel.torch` needs torch", "torch") from error
    return torch


def to_tensors(element: Any) -> Any:
    """Makes tensors of the arrays of an element, on the same memory.

    Arrays are copied where a tensor cannot be made of their memory: those that are not to be
    written to, and those that are read backwards. What torch has no type for (strings, times,
    objects) stays as it is.

    >>> to_tensors({"x": np.arange(3, dtype=np.float32), "name": "a"})
    {'x': tensor([0., 1., 2.]), 'name': 'a'}
    """
    torch = torch_package()
    return map_leaves(lambda leaf: _tensor(torch, leaf), element)


class Tensors:
    """Makes tensors of elements, and puts them where they are wanted."""

    def __init__(self, device: Any, pin_memory: bool) -> None:
        self._torch = torch = torch_package()
        self._device = None if device is None else _usable(torch, device)
        self._pin = pin_memory and torch.accelerator.is_available()
        if pin_memory and not self._pin:
            warnings.warn(
                "`pin_memory=True` is for copies to an accelerator, and torch finds none here: "
                "tensors stay in ordinary memory.",
                stacklevel=4,
            )

    def placing(self) -> Callable[[Any], Any]:
        """Makes tensors of an element, where they are wanted as things stand now."""
        device = self._device
        if device is None:
            state = accelerate_state()
            device = None if state is None else state.device

        def placed(leaf: Any) -> Any:
            tensor = _tensor(self._torch, leaf)
            if isinstance(tensor, self._torch.Tensor):
                if self._pin:
                    tensor = tensor.pin_memory()
                if device is not None:
                    # A copy from ordinary memory waits for itself, and one from pinned memory for
                    # whoever uses it.
                    tensor = tensor.to(device, non_blocking=self._pin)
            return tensor

        return partial(map_leaves, placed)


def _usable(torch: Any, device: Any) -> Any:
    """The device of that name, if this machine has it."""
    found = torch.device(device)  # (It says what is wrong with a name.)
    # Asked without a start of the accelerator, for which each process has yet to choose its own.
    kind = getattr(torch, found.type, None)
    available = getattr(kind, "is_available", lambda: True)()
    count = getattr(kind, "device_count", lambda: None)() if found.type != "cpu" else None
    if available and (count is None or (found.index or 0) < count):
        return found
    has = f"has {count} of them" if count else "finds none"
    raise PlanError(
        f"`device={str(device)!r}`: torch {has} here. Without `device`, tensors stay in the memory "
        "of the batch."
    )


def _tensor(torch: Any, leaf: Any) -> Any:
    if isinstance(leaf, np.generic):
        leaf = np.asarray(leaf)
    if not isinstance(leaf, np.ndarray) or isinstance(leaf, np.ma.MaskedArray):
        return leaf
    if leaf.dtype.name == "bfloat16":  # Of `ml_dtypes`, which torch does not know.
        return _tensor(torch, leaf.view(np.int16)).view(torch.bfloat16)
    if leaf.dtype.kind not in "biufc":
        return leaf
    if not leaf.dtype.isnative:
        leaf = leaf.astype(leaf.dtype.newbyteorder("="))
    if not leaf.flags.writeable or any(stride < 0 for stride in leaf.strides):
        leaf = leaf.copy()
    try:
        return torch.from_numpy(leaf)
    except TypeError:  # Such as float128.
        return leaf
