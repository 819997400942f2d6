"""The ranks of a torch job, and its store, which carries messages between them."""

import itertools
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from bushel.errors import PlanError
from bushel.lanes.agree import Agreement

# Processes of a job make their iterators in the same order, so they have the same numbers.
_numbers = itertools.count()
# The interval between checks for a note: short at first, then longer and longer.
_FIRST_LOOK_SECONDS = 0.0005
_LAST_LOOK_SECONDS = 0.02


def torch_process() -> tuple[int, int] | None:
    """The rank of this process and the number of ranks; None where there are no others.

    torch is not imported: a program in such a job has done so, or `torchrun` has set variables.
    """
    distributed = _distributed()
    if distributed is not None:
        rank, count = distributed.get_rank(), distributed.get_world_size()
    elif "TORCHELASTIC_RUN_ID" in os.environ and {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    else:
        return None
    return (rank, count) if count > 1 else None


def torch_agreement(timeout_s: float) -> Agreement:
    """Makes the function by which the processes of this torch job agree on a number."""
    distributed = _distributed()
    if distributed is None:
        raise PlanError(
            "`torchrun` started this process as one of several, and they have no way yet to agree "
            "on where the data ends. Call `torch.distributed.init_process_group()` first, or pass "
            "`agree=` to `lanes`."
        )
    index, count = distributed.get_rank(), distributed.get_world_size()
    # (torch has no public name for the store that `init_process_group` made, or was given.)
    store = distributed.distributed_c10d._get_default_store()
    board = TorchBoard(store.clone(), count)
    return Agreement(board, index, count, f"bushel/{next(_numbers)}", timeout_s)


def _distributed() -> Any:
    """`torch.distributed`, if a job has been set up."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


class TorchBoard:
    """Leaves notes in a store of torch, and reads those of others.

    It polls instead of waiting within the store, which serves one call at a time: meanwhile another
    thread may have to write that this process closes.
    """

    def __init__(self, store: Any, count: int) -> None:
        self._store = store
        # The last parts of all names of notes.
        self._names = [*map(str, range(count)), "least"]

    def key_value_set(self, key: str, value: str) -> None:
        """Leaves a note."""
        self._store.set(key, value)

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Reads a note as soon as it exists."""
        end = time.monotonic() + timeout_in_ms / 1000
        pause = _FIRST_LOOK_SECONDS
        while not self._store.check([key]):
            left = end - time.monotonic()
            if left <= 0:
                # JAX's coordinator has this text, too.
                raise TimeoutError(f"DEADLINE_EXCEEDED: nobody has written {key!r}")
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LAST_LOOK_SECONDS)
        return str(self._store.get(key).decode())

    def key_value_dir_get(self, key: str) -> Sequence[tuple[str, str]]:
        """The notes below a name, as far as they exist."""
        there = [key + name for name in self._names if self._store.check([key + name])]
        return [(name, self._store.get(name).decode()) for name in there]

    def key_value_delete(self, key: str) -> None:
        """Removes a note."""
        self._store.delete_key(key)
