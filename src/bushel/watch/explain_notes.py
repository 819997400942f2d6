"""The notes of `explain()` about a step: the line of its function, the files of its source."""

import functools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bushel.core.node import Node
from bushel.core.tree import leaves_with_paths
from bushel.deliver.job import process_if_known
from bushel.files.paths import is_remote, without_query
from bushel.lanes.deal import DealNode
from bushel.order.shuffle import ShuffleNode
from bushel.sources.memory import ColumnsNode
from bushel.sources.pinned import Pinned
from bushel.sources.read_records import SequenceNode
from bushel.watch.plain_text import plural, size

_LAMBDA = "<lambda> at "


def functions_of(step: Node) -> list[Any]:
    """The user's functions that a step calls."""
    names = ("function", "batch_fn", "operation", "placement")
    found = [getattr(step, name, None) for name in names]
    return [function for function in found if callable(function)]


def notes_of(step: Node) -> Iterator[str]:
    """Facts about a step; nothing is read for them."""
    if isinstance(step, ColumnsNode):
        yield size(sum(_bytes_of(leaf) for _, leaf in leaves_with_paths(step.tree)))
    if isinstance(step, SequenceNode):
        yield from _notes_of_source(step.source)
    if isinstance(step, ShuffleNode):
        yield "each once an epoch"
    if isinstance(step, DealNode):
        yield _own_lanes(step)
    if not step.knows_length:
        yield "counted by a pass over the data, when it is first needed"
    for function in functions_of(step):
        place = line_of(function)
        if place is not None and _LAMBDA not in step.label:
            yield place


def line_of(function: Any) -> str | None:
    """The file and line of a function, if it has one.

    >>> def decode(element): ...
    >>> line_of(functools.partial(decode)) == line_of(decode), line_of(len)
    (True, None)
    """
    while isinstance(function, functools.partial):
        function = function.func
    # A callable object has the line of its method.
    for found in (function, vars(type(function)).get("__call__")):
        code = getattr(getattr(found, "__wrapped__", found), "__code__", None)
        if code is not None:
            return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return None


def _bytes_of(leaf: Any) -> int:
    return int(np.asarray(leaf).nbytes) if isinstance(leaf, np.ndarray) else 0


def _notes_of_source(source: Any) -> Iterator[str]:
    source = _known_source(source)
    known = getattr(source, "known_bytes", None)
    if known is not None:
        yield size(known)
    paths = getattr(source, "paths", None)
    if paths:
        yield _files(paths)


def _known_source(source: Any) -> Any:
    """A source of bushel's; None for any other, as a user's class may have to read to answer."""
    while isinstance(source, Pinned):
        source = source._source
    return source if type(source).__module__.startswith("bushel.") else None


def size_of_source(source: Any) -> tuple[int | None, int | None]:
    """The number of files of a source, and of bytes, as far as known without reading."""
    source = _known_source(source)
    paths, known = getattr(source, "paths", None), getattr(source, "known_bytes", None)
    return len(paths) if paths else None, None if known is None else int(known)


def _files(paths: Sequence[str]) -> str:
    """The number of files, and the common part of their names; no keys or passwords."""
    first, last = _public(paths[0]), _public(paths[-1])
    if len(paths) == 1:
        return first
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return f"{plural(len(paths), 'file')}, {first[:same]}*"


def _public(path: str) -> str:
    """A path without possible secrets: user and password, and the query after a `?`.

    >>> _public("https://me:secret@host/a.npy?key=1"), _public("/data/what?@x")
    ('https://host/a.npy', '/data/what?@x')
    """
    if not is_remote(path):
        return path
    return re.sub(r"(?<=://)[^/@]*@", "", without_query(path))


def _own_lanes(deal: DealNode) -> str:
    shard = deal.shard
    index, count = process_if_known() if shard is None else (shard.shard_index, shard.shard_count)
    own, left = divmod(deal.lanes, count)
    if left:
        return f"host {index} of {count}"
    first, last = index * own, index * own + own - 1
    if count == 1:
        return "all of them on this host"
    return f"host {index} of {count} has lanes {first} to {last}"
