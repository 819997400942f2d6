"""The ranks of a Ray Train run that is neither a JAX job nor a torch job."""

import importlib
import itertools
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from bushel.deliver.torch_job import TorchBoard
from bushel.lanes.agree import Agreement

# Workers of a run make their iterators in the same order, so they have the same numbers.
_numbers = itertools.count()
# The prefix of this run's notes; a restarted run has another one.
_run: list[str] = []


def ray_train_process() -> tuple[int, int] | None:
    """The rank of this worker and the number of workers; None where there are no others.

    Ray is not imported: a training function of Ray Train has done so.
    """
    train: Any = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, count = context.get_world_rank(), context.get_world_size()
    except (AttributeError, RuntimeError):  # Not within a training function.
        return None
    return (rank, count) if count is not None and count > 1 else None


def ray_train_agreement(timeout_s: float) -> Agreement:
    """Makes the function by which the workers of this run agree on a number."""
    process = ray_train_process()
    assert process is not None
    if not _run:
        collective: Any = importlib.import_module("ray.train.collective")
        _run.append(collective.broadcast_from_rank_zero(uuid.uuid4().hex))
    index, count = process
    name = f"bushel/{_run[0]}/{next(_numbers)}"
    return Agreement(TorchBoard(_NotesOfTheHead(), count), index, count, name, timeout_s)


class _NotesOfTheHead:
    """Notes in the table of Ray's head node, with the interface of a store of torch."""

    def __init__(self) -> None:
        # (Ray has no public way to leave a note that outlives its writer.)
        self._table: Any = sys.modules["ray"].experimental.internal_kv

    def set(self, key: str, value: str) -> None:
        self._table._internal_kv_put(key, value, overwrite=True, namespace="bushel")

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._table._internal_kv_exists(key, namespace="bushel") for key in keys)

    def get(self, key: str) -> Any:
        return self._table._internal_kv_get(key, namespace="bushel")

    def delete_key(self, key: str) -> None:
        self._table._internal_kv_del(key, namespace="bushel")
