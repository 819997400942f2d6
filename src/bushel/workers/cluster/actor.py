"""The worker on a cluster, a Ray actor: loads the pipeline, does tasks."""

import logging
import os
import pickle
import platform
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from bushel.core.limits import limit_of
from bushel.run.shared_threads import ThreadsOfStreams
from bushel.transport.arena import Arena
from bushel.transport.link import dump_apart
from bushel.transport.own_classes import remember_classes
from bushel.transport.slots import Ring
from bushel.workers.cluster.cluster import WorkerGreeting
from bushel.workers.cluster.pages import new_page
from bushel.workers.fragment import Runner, up_to_unpicklable
from bushel.workers.kept_memory import keep_memory

_log = logging.getLogger("bushel")

# Smaller memory is in the cache in any case.
_LEAST_ARENA = 1 << 16

Bytes = npt.NDArray[np.uint8]
# A value for sending: its pickle, the arrays beside it, and which of them are writable.
Packed = tuple[bytes, list[Bytes], list[bool]]


class ClusterWorker:
    """The object in an actor; its methods are called one at a time, in the order sent."""

    def __init__(self, index: int, count: int) -> None:
        keep_memory()
        self._place = index, count
        self._runners: list[Runner] = []
        self._page_path, self._page = new_page()
        # Memory that is reused for batches, as a fresh page costs more than filling it. The last
        # batch was copied to the node's store before the next task came.
        self._ring = Ring()
        self._arena: Arena | None = None
        self._usual = 0

    def hello(self, node: str, paths: Sequence[str]) -> WorkerGreeting:
        """Returns the node, the versions, and those of the given paths that do not exist here."""
        missing = [path for path in paths if not os.path.exists(path)][:8]
        here = (node, socket.gethostname(), os.getpid())
        return WorkerGreeting(*here, *versions(), missing, self._page_path)

    def begin(self, prepare: bytes, search: Sequence[str], pickled: Bytes, *arrays: Bytes) -> None:
        """Receives the pipeline; large arrays stay in the node's store, which is read-only."""
        # Folders of modules of the user's program, as far as this machine has them.
        sys.path += [path for path in search if path not in sys.path and os.path.isdir(path)]
        first = pickle.loads(prepare)
        if first is not None:
            first(*self._place)
        fragments = pickle.loads(pickled.data, buffers=arrays)
        threads = ThreadsOfStreams()
        self._runners = [Runner(fragment, self._page.note, threads) for fragment in fragments]
        remember_classes()

    def run(self, pickled: bytes, arrays: Sequence[Bytes] = ()) -> tuple[bool, Packed]:
        """Does a task; returns whether the value is an outcome, or the text of a fault."""
        try:
            message = pickle.loads(pickled, buffers=arrays)
            if message.given is not None:
                remember_classes()
            self._page.begin(message.task)
            arena = self._next_arena()
            outcome = self._runners[message.fragment].run(message, arena)
            self._page.note(-1)
        except Exception as error:
            # Not an exception of a user's function, which would be part of the outcome.
            limit = limit_of(error)
            text = f"{limit}.\n{traceback.format_exc()}" if limit else traceback.format_exc()
            return False, (text.encode(errors="replace"), [], [])
        try:
            packed = packed_value(outcome, False)
        except Exception as error:
            packed = packed_value(up_to_unpicklable(outcome, error), False)
        self._usual = size_of(packed)
        return True, packed

    def _next_arena(self) -> Arena | None:
        if self._arena is not None:
            self._arena.give_back()
        self._arena = Arena(self._ring, self._usual) if self._usual >= _LEAST_ARENA else None
        return self._arena

    def leave(self) -> None:
        """Removes its files on the node."""
        with suppress(OSError):
            os.unlink(self._page_path)


def versions() -> tuple[str, str, str]:
    """The versions of Python, numpy and bushel here."""
    return platform.python_version(), np.__version__, sys.modules["bushel"].__version__


def why_refused(worker: WorkerGreeting) -> str | None:
    """Why a worker would not make the same stream; None if it would."""
    here = versions()
    if worker.missing:
        return (
            f"the node of {worker} does not have {', '.join(worker.missing)}, which this "
            "pipeline reads. Put the files where all nodes see them (a shared file system, an "
            "object store), or choose nodes that have them with `label_selector`."
        )
    if worker.bushel != here[2] or worker.python.split(".")[:2] != here[0].split(".")[:2]:
        return (
            f"{worker} has Python {worker.python} and bushel {worker.bushel}, and this program "
            f"has Python {here[0]} and bushel {here[2]}. Give the nodes the same "
            "(`runtime_env={'pip': [...]}` or their image)."
        )
    if worker.numpy != here[1]:
        _log.warning(
            "%s has numpy %s and this program has %s: random steps may differ there.",
            worker, worker.numpy, here[1],
        )  # fmt: skip
    return None


def packed_value(value: Any, by_value: bool) -> Packed:
    """Pickles a value, with its arrays beside it."""
    pickled, buffers = dump_apart(value, by_value)
    arrays = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
    return pickled, arrays, [not buffer.readonly for buffer in buffers]


def unpacked(packed: Packed, arrays: Sequence[Bytes] | None = None) -> Any:
    """Restores a value; `arrays` replace those that came, as copies."""
    pickled, came, _ = packed
    return pickle.loads(pickled, buffers=came if arrays is None else arrays)


def size_of(packed: Packed) -> int:
    """Bytes of a value for sending."""
    return len(packed[0]) + sum(array.nbytes for array in packed[1])
