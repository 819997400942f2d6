"""Refuses objects that belong to one process: open files, sockets, iterators, locks.

Some of them can be pickled nevertheless: an open text file as a copy of its remaining text, an
iterator as another one at the same place. Each process would then have its own, and elements taken
in one process would be taken in the others again.
"""

import io
import mmap
import socket
import sys
import weakref
from collections.abc import Generator, Iterator
from threading import Lock, RLock
from typing import Any, NamedTuple


class UnsendableKind(NamedTuple):
    """A kind of object, why it is not sent, and what to write instead."""

    name: str
    why: str
    instead: str


_TWICE = "each worker would read its own copy, and so the same items as other workers"
_OURS = "it belongs to this process"
_FILE = UnsendableKind(
    "an open file",
    _TWICE,
    "Pass its path, and open it in the function, on first use, or in `worker_init_fn`",
)
_SOCKET = UnsendableKind(
    "an open socket", _OURS, "Connect in the function, on first use, or in `worker_init_fn`"
)
_MAP = UnsendableKind(
    "a memory map",
    _OURS,
    "Pass the path, and map the file in the function, on first use; or use `np.memmap`",
)
_LOCK = UnsendableKind(
    "a lock", _OURS, "Make it in the function, on first use, or in `worker_init_fn`"
)
_GENERATOR = UnsendableKind(
    "a generator", _TWICE, "Make a list of what it gives, or make it in the function, on first use"
)
ITERATOR = UnsendableKind(
    "an iterator",
    _TWICE,
    "Pass what it goes through (a list, a range), and take what belongs to the position of the "
    "element, which `map_with_index` tells",
)
_KINDS: tuple[tuple[tuple[type, ...], UnsendableKind], ...] = (
    # Not `StringIO` and `BytesIO`, which are just their contents.
    ((io.TextIOWrapper, io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom), _FILE),
    ((socket.socket,), _SOCKET),
    ((mmap.mmap,), _MAP),
    ((type(Lock()), type(RLock())), _LOCK),
    ((Generator,), _GENERATOR),
)
# A class of the user's, or of a library, defines itself how it is sent.
_BUILT_IN = frozenset(["builtins", "itertools"])


def kind_of(cls: type) -> UnsendableKind | None:
    """The kind of a class's objects, if they must not be sent to another process."""
    # This is called for a hundred thousand objects of a few classes.
    if cls not in _known:
        _known[cls] = _find_kind(cls)
    return _known[cls]


_known: "weakref.WeakKeyDictionary[type, UnsendableKind | None]" = weakref.WeakKeyDictionary()


def _find_kind(cls: type) -> UnsendableKind | None:
    for classes, kind in _KINDS:
        if issubclass(cls, classes):
            return kind
    return ITERATOR if cls.__module__ in _BUILT_IN and issubclass(cls, Iterator) else None


def output_of(value: Any) -> tuple[Any, ...] | None:
    """The name of a standard stream, which is replaced by that of the other process; else None."""
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        if value is not None and value is getattr(sys, name, None):
            return getattr, (sys, name)
    return None


class UnsendableError(TypeError):
    """An object was to be sent that is meaningful in one process only."""

    def __init__(self, kind: UnsendableKind) -> None:
        super().__init__(f"{kind.name} cannot be sent to another process")


def refuse_file(value: Any) -> tuple[Any, ...] | None:
    """Raises for an open file in an element, which pickle might convert."""
    if kind_of(type(value)) is not _FILE:
        return None
    output = output_of(value)
    if output is None:
        raise UnsendableError(_FILE)
    return output
