"""The numpy type of an Arrow type, if there is one."""

from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.sources.arrow.package import arrow


def number_type(kind: Any) -> np.dtype[Any] | None:
    """The numpy type of a column of numbers, dates or times; None for any other.

    >>> import pyarrow as pa
    >>> number_type(pa.int16()), number_type(pa.date32()), number_type(pa.string())
    (dtype('int16'), dtype('<M8[D]'), None)
    """
    types = arrow().types
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    if types.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")  # In UTC if there is a time zone.
    if types.is_duration(kind):
        return np.dtype(f"timedelta64[{kind.unit}]")
    if types.is_date32(kind):
        return np.dtype("datetime64[D]")
    if types.is_date64(kind):
        return np.dtype("datetime64[ms]")
    return None


def stored_type(kind: Any) -> np.dtype[Any]:
    """The numpy type in which Arrow stores a number: days have 32 bits, in numpy 64."""
    dtype = number_type(kind)
    assert dtype is not None
    return np.dtype(np.int32) if arrow().types.is_date32(kind) else dtype


def numbers(array: Any) -> npt.NDArray[Any]:
    """The values of an array of numbers, copied; any value for a null."""
    kind, count = array.type, len(array)
    if not count:
        return np.empty(0, number_type(kind))
    buffer = array.buffers()[1]
    if arrow().types.is_boolean(kind):
        bits = np.frombuffer(buffer, np.uint8)
        unpacked = np.unpackbits(bits, count=array.offset + count, bitorder="little")
        return unpacked[array.offset :].astype(np.bool_)
    dtype = stored_type(kind)
    stored = np.frombuffer(buffer, dtype, count, array.offset * dtype.itemsize)
    return stored.astype(number_type(kind))


def inner_array(array: Any) -> Any:
    """The values within the rows of an array of lists of one length, row after row."""
    kind = array.type
    start = array.offset * kind.list_size
    return array.values.slice(start, len(array) * kind.list_size)


def is_tensor(kind: Any) -> bool:
    """Whether a type is Arrow's type for arrays of one shape."""
    tensor = getattr(arrow(), "FixedShapeTensorType", None)
    if tensor is None or not isinstance(kind, tensor):
        return False
    # With its axes stored in another order, it is left to pyarrow.
    return kind.permutation in (None, [], list(range(len(kind.shape))))
