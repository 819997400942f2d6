"""The device and the processes of a program with Accelerate; refuses datasets not shared out."""

import contextlib
import contextvars
import sys
from collections.abc import Iterator
from typing import Any

from bushel.core.node import Node, walk
from bushel.errors import PlanError
from bushel.lanes.deal import DealNode
from bushel.order.slice import SliceNode

# Whether the check was made already, or the dataset is meant to be the same in every process.
_is_meant: contextvars.ContextVar[bool] = contextvars.ContextVar("is_meant", default=False)


def accelerate_state() -> Any:
    """Accelerate's state of this process; None if no `Accelerator` has been made.

    Accelerate is not imported: a program that has made one has done so.
    """
    state: Any = sys.modules.get("accelerate.state")
    if state is None or not state.is_initialized():
        return None
    return state.PartialState()


def has_share(node: Node, count: int) -> bool:
    """Whether each of so many processes has its share: its lanes, or every n-th element."""
    return any(
        isinstance(step, DealNode) or (isinstance(step, SliceNode) and step.step % count == 0)
        for step in walk(node)
    )


@contextlib.contextmanager
def as_it_is() -> Iterator[None]:
    """Opens a dataset that is the same in every process, as the user asked for."""
    token = _is_meant.set(True)
    try:
        yield
    finally:
        _is_meant.reset(token)


def refuse_unprepared(node: Node) -> None:
    """Raises where each process of an Accelerate job would iterate over the whole dataset.

    `accelerator.prepare` returns a dataset unchanged, without a word. The main process may read a
    dataset alone, so only the other processes refuse.
    """
    if "accelerate.state" not in sys.modules or _is_meant.get():
        return
    state = accelerate_state()
    if state is None or state.num_processes == 1 or state.is_main_process:
        return
    if has_share(node, state.num_processes):
        return
    raise PlanError(
        f"this is process {state.process_index} of the {state.num_processes} of an Accelerate job, "
        "and iterates over a whole dataset, as all the others do: `accelerator.prepare` takes "
        "torch DataLoaders, and hands a dataset back as it is. Write `loader = bushel.torch."
        "loader(ds.lanes(64).batch(size))` over a random-access dataset: each process has its "
        "share, on its device. If every process is to have all of it: `bushel.torch.loader(ds, "
        "whole=True)`."
    )
