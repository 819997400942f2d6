"""Names of functions and sources in messages and states."""

import functools
from collections.abc import Sequence
from typing import Any

# The most steps that a pipeline is shown with in one line: so many of the first, and of the last.
_FIRST_SHOWN, _LAST_SHOWN = 12, 12
# Names as long as that of a mixture with a thousand weights are cut there.
_WIDEST = 400


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


def steps_in_line(labels: Sequence[str]) -> str:
    """Joins the names of steps in the order of the data; of very many, the first and the last.

    >>> steps_in_line(["range(9)", "map", "batch(2)"])
    'range(9) -> map -> batch(2)'
    """
    labels = [label if len(label) <= _WIDEST else f"{label[:_WIDEST]}…" for label in labels]
    more = len(labels) - _FIRST_SHOWN - _LAST_SHOWN
    if more > 1:
        labels = [*labels[:_FIRST_SHOWN], f"… {more:,} more …", *labels[-_LAST_SHOWN:]]
    return " -> ".join(labels)


def source_name(source: Any) -> str:
    """Names a source.

    >>> source_name([1, 2, 3])
    'list'
    """
    # A source of ours that stands for another names that one, in an attribute that no user has.
    return str(getattr(type(source), "bushel_stands_for", _own_name)(source))


def _own_name(source: Any) -> str:
    return type(source).__name__
