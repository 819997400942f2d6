"""Names of functions and sources in messages and states."""

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
    # A source of ours that stands for another names that one, in an attribute that no user has.
    return str(getattr(type(source), "bushel_stands_for", _own_name)(source))


def _own_name(source: Any) -> str:
    return type(source).__name__
