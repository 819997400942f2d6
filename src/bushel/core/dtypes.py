"""Array types to text and back: numpy's, structured ones, and those of ml_dtypes."""

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

# What JSON holds: the text of a type, or the list of fields of a structured one.
TypeText: TypeAlias = str | list[Any]


def text_of(dtype: "np.dtype[Any]") -> TypeText | None:
    """The text of a type, or None for a type that has no text, such as Python objects.

    >>> text_of(np.dtype("f4")), text_of(np.dtype([("x", "f4"), ("y", "u1", (2,))]))
    ('<f4', ['struct', 6, ['x', '<f4', 0], ['y', ['array', '|u1', 2], 4]])
    """
    # Types with and without a class of records compare as equal.
    scalar: Any = dtype.type
    return _known(dtype, scalar)


@lru_cache(maxsize=256)
def _known(dtype: "np.dtype[Any]", scalar: Any) -> TypeText | None:
    text = None if dtype.hasobject else _text_of(dtype)
    try:
        same = text is not None and _is_same(dtype_of(text), dtype, scalar)
    except (AttributeError, ImportError, TypeError, ValueError):
        return None
    return text if same else None


def _text_of(dtype: "np.dtype[Any]") -> TypeText | None:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        within = text_of(base)
        return None if within is None else ["array", within, *shape]
    if dtype.names is not None:
        assert dtype.fields is not None
        fields: list[list[Any]] = []
        for name in dtype.names:
            kind, offset, *title = dtype.fields[name]
            fields.append([name, text_of(kind), offset, *title])
            if fields[-1][1] is None or any(type(text) is not str for text in title):
                return None
        return ["record" if dtype.type is np.record else "struct", dtype.itemsize, *fields]
    # numpy's letters of types that it does not know stand for bytes, or for nothing; such types
    # have a name.
    return dtype.str if _from_letters(dtype.str) == dtype else dtype.name


def _from_letters(text: str) -> "np.dtype[Any] | None":
    try:
        return np.dtype(text)
    except TypeError:
        return None


def _is_same(made: "np.dtype[Any]", dtype: "np.dtype[Any]", scalar: Any) -> bool:
    return made == dtype and made.type is scalar


def dtype_of(text: TypeText) -> "np.dtype[Any]":
    """The type that a text stands for; a ValueError or TypeError if it stands for none."""
    if isinstance(text, str):
        dtype = _named(text)
    elif text[0] == "array":
        dtype = np.dtype((dtype_of(text[1]), tuple(text[2:])))
    elif text[0] in ("struct", "record"):
        fields = list(zip(*(_field(*field) for field in text[2:]), strict=True)) or [()] * 4
        keys = ("names", "formats", "offsets", "titles")
        parts: Any = {**dict(zip(keys, fields, strict=True)), "itemsize": text[1]}
        dtype = np.dtype(parts)
        dtype = np.dtype((np.record, dtype)) if text[0] == "record" else dtype
    else:
        raise ValueError(f"{text!r:.100} is no type of an array")
    if dtype.hasobject:  # The bytes of such an array would be taken for addresses.
        raise ValueError(f"an array of type {dtype} cannot be made of bytes")
    return dtype


def _field(name: str, text: TypeText, offset: int, title: str | None = None) -> tuple[Any, ...]:
    return name, dtype_of(text), offset, title


def _named(text: str) -> "np.dtype[Any]":
    if text[:1] not in "<>|=":
        import ml_dtypes

        named: np.dtype[Any] = np.dtype(getattr(ml_dtypes, text))
        return named
    return np.dtype(text)


def bfloat16() -> "np.dtype[Any]":
    """The type of that name; an ImportError where ml_dtypes is not installed."""
    return _named("bfloat16")
