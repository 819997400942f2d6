"""`device_put`; the processes of a JAX job and their agreement; the only file that imports JAX."""

import atexit
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bushel.core.block import Block
from bushel.core.frozen import frozen
from bushel.core.node import Node, OneByOne
from bushel.core.positions import Positions
from bushel.core.room import align_batches
from bushel.core.tree import leaves_with_paths, show_path
from bushel.errors import ClosedError, MissingPackageError, PlanError
from bushel.lanes.agree import Agreement
from bushel.transforms.function import apply_to_rows

# Processes of a job make their iterators in the same order, so they number them alike.
_numbers = itertools.count()
_open: "weakref.WeakSet[Agreement]" = weakref.WeakSet()


def process_index_and_count() -> tuple[int, int]:
    """Returns this process's number and the number of processes of the JAX job."""
    try:
        import jax
    except ImportError:
        return 0, 1
    return jax.process_index(), jax.process_count()


def process_if_known() -> tuple[int, int]:
    """The same as far as it is known without starting JAX; else the only process."""
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    if getattr(state, "client", None) is None:
        return 0, 1
    return int(state.process_id), int(state.num_processes)  # type: ignore[union-attr]


# The number of times that all processes waited for each other, by reason.
_rounds: dict[str, int] = {}
_PATIENCE_SECONDS = 600


def wait_for_all_processes(reason: str) -> None:
    """Waits until every process of the JAX job has come here for the same reason."""
    from jax._src import distributed

    board = distributed.global_state.client
    if board is None:
        return
    number = _rounds[reason] = _rounds.get(reason, 0) + 1
    board.wait_at_barrier(f"bushel: {reason} ({number})", _PATIENCE_SECONDS * 1000)


def agreement(timeout_s: float) -> Agreement:
    """Makes the function by which the processes of this JAX job agree on a number.

    `timeout_s` is how long one of them may take longer.
    """
    from jax._src import distributed

    index, count = process_index_and_count()
    board = distributed.global_state.client
    if board is None:
        raise PlanError(
            f"this is process {index} of {count}, and they have no coordinator. Call "
            "`jax.distributed.initialize()` first, or pass `agree=` to `lanes`."
        )
    made = Agreement(board, index, count, f"bushel/{next(_numbers)}", timeout_s)
    _before_jax_ends(_leave_all)
    _open.add(made)
    return made


def _leave_all() -> None:
    for made in list(_open):
        made.end()


def _before_jax_ends(function: Callable[[], None]) -> None:
    """Registers a function to call at the end of the program, before JAX's own.

    In JAX's, the processes of a job wait for each other: a process that waits for this one here
    would never arrive.
    """
    atexit.unregister(function)
    atexit.register(function)


# Other targets of `jax.device_put`, in the versions of JAX that have them: a sharding with a
# layout, and a kind of memory.
_OTHER_PLACES = ("Format", "Layout", "MemorySpace", "Space")


@frozen
class ToDeviceNode(OneByOne):
    """Moves elements to devices."""

    input: Node
    placement: "Placement"
    stays_here = True

    def apply(self, block: Block) -> Block:
        return apply_to_rows(self, self.results, block, self.skips_none)

    def results(self, rows: Iterable[Any], positions: Positions) -> Iterable[Any]:
        return map(self.placement, rows)

    def describe(self) -> str:
        return ""  # The device does not change the elements.

    @property
    def label(self) -> str:
        return "device_put"


class _Moves:
    """Counts the moves in progress, for which the end of the program waits.

    A thread that returns from JAX to an interpreter that has ended crashes the process, and changes
    its exit code.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._over = False

    def __enter__(self) -> None:
        with self._changed:
            if self._over:
                raise ClosedError("the program is ending, and nothing is moved any more.")
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.wait_for(lambda: not self._count, _LAST_MOVES_SECONDS)


# A move that takes longer hangs, and the program is to end.
_LAST_MOVES_SECONDS = 10.0
_moves = _Moves()


class Placement:
    """Moves an element to a device, a sharding, or the devices of a tree.

    A sharding over devices of several processes makes global arrays: each process supplies its own
    rows.
    """

    def __init__(self, device: Any) -> None:
        try:
            import jax
        except ImportError as error:
            raise MissingPackageError("`device_put` needs JAX", "jax") from error
        self._device = device
        places = jax.tree_util.tree_leaves(device)
        for place in places:
            if not isinstance(place, (jax.Device, jax.sharding.Sharding)) and (
                type(place).__name__ not in _OTHER_PLACES
            ):
                raise PlanError(
                    "`device_put` takes a device, a sharding, or a tree of shardings like the "
                    f"element, and got {place!r}."
                )
        self._global = any(not _is_here(place) for place in places)
        _before_jax_ends(_moves.end)
        if _platform(jax, places) == "cpu":
            # An array with this alignment is used without a copy.
            align_batches()

    def __call__(self, element: Any) -> Any:
        import jax

        with _moves:
            try:
                if not self._global:
                    return jax.device_put(element, self._device)
                return jax.tree_util.tree_map(
                    lambda place, part: jax.tree_util.tree_map(
                        lambda leaf: _from_all_processes(jax, place, leaf), part
                    ),
                    self._device,
                    element,
                )
            except (TypeError, ValueError) as error:
                _explain(error, element)
                raise

    def __repr__(self) -> str:
        return f"Placement({self._device!r})"


def _is_here(place: Any) -> bool:
    """Whether all its devices belong to this process."""
    return bool(getattr(getattr(place, "sharding", place), "is_fully_addressable", True))


def _platform(jax: Any, places: list[Any]) -> str:
    for place in places:
        if isinstance(place, jax.Device):
            return str(place.platform)
        for device in getattr(getattr(place, "sharding", place), "device_set", ()):
            return str(device.platform)
    return str(jax.default_backend())


def _from_all_processes(jax: Any, place: Any, leaf: Any) -> Any:
    if _is_here(place):
        return jax.device_put(leaf, place)
    return jax.make_array_from_process_local_data(place, np.asarray(leaf))


def _explain(error: Exception, element: Any) -> None:
    """Says which element could not be moved, and why."""
    leaves = list(leaves_with_paths(element))
    for path, leaf in leaves:
        dtype = getattr(leaf, "dtype", None)
        if isinstance(leaf, (str, bytes)) or (dtype is not None and dtype.kind in "OSUVmM"):
            what = type(leaf).__name__ if dtype is None else f"an array of {dtype}"
            error.add_note(
                f"bushel: {show_path(path)} is {what}, which no device holds. Leave it out, or "
                "encode it as numbers, in a `map` before `device_put`."
            )
            return
    shapes = ", ".join(f"{show_path(path)}: {getattr(leaf, 'shape', ())}" for path, leaf in leaves)
    error.add_note(f"bushel: while moving an element with shapes {shapes} to devices.")
