"""What functions and sources are called in messages and states."""

import functools
from typing import Any


def name_of(transform: Any) -> str:
    """Names a function as its author would.

    >>> def decode(element): ...
    >>> name_of(decode), name_of(functools.partial(decode))
    ('decode', 'decode')
    """
    while isinstance(transform, functools.partial):
        transform = transform.func
    name = getattr(transform, "__name__", None)
    if name is None:
        return type(transform).__name__
    if name == "<lambda>" and (code := getattr(transform, "__code__", None)):
        file = code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
        return f"<lambda> at {file}:{code.co_firstlineno}"
    return str(name)


def source_name(source: Any) -> str:
    """Names a source.

    >>> source_name([1, 2, 3])
    'list'
    """
    # One that stands for another source says which.
    return str(getattr(source, "source_name", None) or type(source).__name__)
