"""Pickles values that plain pickle would change: memoryviews, masked arrays, array classes.

A memoryview would become bytes; a masked array without a mask would get one, and lose its hard
mask; an array of a user's class would lose its attributes.
"""

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

# The formats to which a memoryview can be cast.
_FORMATS = frozenset("cbB?hHiIlLqQnNfdP")


class ValuePickler(pickle.Pickler):
    """Pickles values so that they are restored exactly."""

    def reducer_override(self, obj: Any) -> Any:
        return exactly(obj)


def exactly(value: Any) -> Any:
    """How to pickle a value that pickle would change; else NotImplemented."""
    cls: Any = type(value)
    if cls is np.ndarray:
        return NotImplemented
    if cls is memoryview:
        return _of_memoryview(value)
    if not isinstance(value, np.ndarray):
        return NotImplemented
    # Only now: numpy imports its masked arrays on first use, which takes a tenth of a worker's
    # start.
    if cls is np.ma.MaskedArray:
        return _of_masked(value)  # type: ignore[arg-type]
    return _of_array_class(value, cls)


def _of_memoryview(view: memoryview) -> Any:
    if view.format in _FORMATS and 0 not in (view.shape or ()):
        memory = view.tobytes() if view.readonly else bytearray(view.tobytes())
        return _viewed, (memory, view.format, view.shape)
    return _viewed_array, (np.array(view, order="C"), view.readonly)


def _viewed(memory: bytes | bytearray, format: Any, shape: tuple[int, ...]) -> memoryview:
    view = memoryview(memory)
    return view if (format, shape) == ("B", view.shape) else view.cast(format, shape)


def _viewed_array(array: npt.NDArray[Any], readonly: bool) -> memoryview:
    view = memoryview(array)  # type: ignore[arg-type]
    return view.toreadonly() if readonly else view


def _of_masked(array: "np.ma.MaskedArray[Any, Any]") -> Any:
    mask = None if array.mask is np.ma.nomask else array.mask
    own: Any = array
    return _masked, (array.data, mask, own._fill_value, array.hardmask, own._optinfo)


def _masked(data: Any, mask: Any, fill_value: Any, hard: bool, more: Any) -> Any:
    made: Any = np.ma.MaskedArray(
        data, np.ma.nomask if mask is None else mask, copy=False, hard_mask=hard
    )
    made._fill_value = fill_value
    made._optinfo.update(more)
    return made


def _of_array_class(array: Any, cls: Any) -> Any:
    attributes = getattr(array, "__dict__", None)
    if cls is np.memmap:
        # It arrives as an array with its values; the mapped file stays here.
        return _of_class, (array.view(np.ndarray), cls, {})
    if not attributes or (cls.__reduce__, cls.__reduce_ex__) != _OF_NUMPY:
        return NotImplemented  # It has nothing to lose, or defines itself how it is pickled.
    return _of_class, (array.view(np.ndarray), cls, attributes)


_OF_NUMPY = (np.ndarray.__reduce__, np.ndarray.__reduce_ex__)


def _of_class(array: npt.NDArray[Any], cls: Any, attributes: dict[str, Any]) -> Any:
    made = array.view(cls)
    made.__dict__.update(attributes)
    return made
